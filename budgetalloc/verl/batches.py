"""verl's batches without verl: the rows that a step generates from, the rollouts that came back,
and what they report of their costs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.budget import IntArray
from budgetalloc.training.prompts import Prompts, turns
from budgetalloc.training.session import Session

COUNTED = {"turns": ("num_turns", None), "tool_seconds": ("metrics", "tool_calls")}
"""Names that verl's agent loops count themselves: the field of their output, and the key in it."""


def rows_to_roll_out(
    session: Session,
    ids_R: list[Id],
    own_ids: Sequence[Id],
    prompts: Prompts | None,
    earlier: Mapping[Id, int] | None = None,
) -> tuple[list[int], list[Id], list[int]]:
    """The rows from which the step generates, the prompt of each, and its rollouts. Rows of one
    prompt take turns.

    Args:
        session: A session with a step.
        ids_R: The prompts that it requested.
        own_ids: The prompt of each row of the loader's batch.
        prompts: The dataset from which rows are taken; None takes the rows of the loader's batch.
        earlier: For later requests of the step, the earlier requests of each prompt. The turns of a
            prompt then do not depend on the other prompts of the request.
    """
    seed, turn_R = [session.policy.seed, session.policy.estimator.step], []
    if earlier is None:
        turn_R = turns(ids_R, [*seed, 0, 3])  # as with TRL, in its first round
    else:
        counts = Counter(ids_R)  # equal ids are neighbours
        places = session.step.ids_P.find(list(counts)).tolist()
        for (name, count), place in zip(counts.items(), places, strict=True):
            turn_R += turns([name] * count, [*seed, earlier.get(name, 0), 3, place])
    if prompts is not None:
        places_R = prompts.places_in_turn(list(zip(ids_R, turn_R, strict=True)))
    else:
        rows: dict[Id, list[int]] = {}
        for at, name in enumerate(own_ids):
            rows.setdefault(name, []).append(at)
        places_R = [
            rows[name][turn % len(rows[name])] for name, turn in zip(ids_R, turn_R, strict=True)
        ]
    counted = Counter(zip(places_R, ids_R, strict=True))
    return [row for row, _ in counted], [name for _, name in counted], list(counted.values())


@dataclass(frozen=True, eq=False)
class Sessions:
    """The sessions of a batch. A session is a rollout, whose agent loop returns one or more
    outputs, a row each.

    Args:
        uids_R: The group of each rollout: verl's uid of the prompt's row in this step.
        last_R: The row of its last output, which holds the rollout's reward.
        lengths_R: The tokens of all its outputs.
        prompts_R: The tokens of the prompt of its first output, 0 if verl does not say.
        session_K: The rollout of each row of the batch; -1 for padding rows.

    >>> keys = ["b_0_0", "pad-1_0_0", "a_1_0", "a_0_1", "a_0_0"]  # prompt, session and output
    >>> tags = [{"response_len": 3}, {"response_len": 1, "is_padding": True}]
    >>> tags += [{"response_len": 2, "prompt_len": 9}] * 3
    >>> sessions = Sessions.of(keys, tags, ["a", "b"])
    >>> sessions.uids_R, sessions.last_R, sessions.lengths_R, sessions.session_K
    (['a', 'a', 'b'], array([3, 2, 0]), array([4, 2, 3]), array([ 2, -1,  1,  0,  0]))
    >>> sessions.prompts_R
    array([9, 9, 0])
    """

    uids_R: list[str]
    last_R: IntArray
    lengths_R: IntArray
    prompts_R: IntArray
    session_K: IntArray

    @classmethod
    def of(
        cls,
        keys: Sequence[str],
        tags: Sequence[Mapping[str, Any]],
        uids: Sequence[str] | None = None,
    ) -> "Sessions":
        """The rollouts of these rows, in the order of the step's groups and of their sessions.

        verl's batch has the order in which rollouts ended, which differs from run to run.

        verl's key of a row is "{uid}_{session}_{output}". `uids` are the groups of the step; by
        default those of the rows, as they first appear.
        """
        rows: dict[tuple[int, int], list[tuple[int, int]]] = {}  # of each: outputs and their rows
        named = [key.rsplit("_", 2) for key in keys]
        real = [row for row, tag in enumerate(tags) if not tag.get("is_padding", False)]
        uids = list(dict.fromkeys(named[row][0] for row in real)) if uids is None else uids
        place = {uid: at for at, uid in enumerate(uids)}
        for row in real:
            uid, session, output = named[row]
            rows.setdefault((place[uid], int(session)), []).append((int(output), row))
        ordered = sorted(rows)
        session_K = np.full(len(keys), -1, dtype=np.int64)
        for at, name in enumerate(ordered):
            session_K[[row for _, row in rows[name]]] = at
        outputs_R = [sorted(rows[name]) for name in ordered]
        lengths = [sum(tags[row]["response_len"] for _, row in each) for each in outputs_R]
        prompts = [tags[each[0][1]].get("prompt_len", 0) for each in outputs_R]
        return cls(
            uids_R=[uids[group] for group, _ in ordered],
            last_R=np.array([each[-1][1] for each in outputs_R], dtype=np.int64),
            lengths_R=np.array(lengths, dtype=np.int64),
            prompts_R=np.array(prompts, dtype=np.int64),
            session_K=session_K,
        )


def fields_of(names: Sequence[str]) -> list[str]:
    """The fields of verl's TransferQueue in which these names are looked up.

    >>> fields_of(["turns", "api_calls"])
    ['num_turns', 'extra_fields']
    """
    counted = dict.fromkeys(COUNTED[name][0] for name in names if name in COUNTED)
    return [*counted, "extra_fields"] if names else []


def reports(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, list[Any]]:
    """The reports by name, one entry for each rollout, None where there is none.

    Args:
        rows: The fields of each rollout's last output.
        names: What may be reported: a key of `COUNTED`; an entry of the agent loop's
            `extra_fields`; or one of the dictionary that the reward function returned. The first
            that has a value counts.

    >>> row = {"num_turns": 6, "metrics": {"tool_calls": 1.5},
    ...     "extra_fields": {"reward_extra_info": {"judge": 0.25}}}
    >>> reports([row, {}], ["turns", "tool_seconds", "judge"])
    {'turns': [6, None], 'tool_seconds': [1.5, None], 'judge': [0.25, None]}
    """

    def value(row: Mapping[str, Any], name: str) -> Any:
        found = None
        if name in COUNTED:
            field, key = COUNTED[name]
            found = row.get(field) if key is None else _mapping(row.get(field)).get(key)
        extra = _mapping(row.get("extra_fields"))
        for more in (extra, _mapping(extra.get("reward_extra_info"))):
            found = more.get(name) if found is None else found
        return found

    return {name: [value(row, name) for row in rows] for name in names}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}

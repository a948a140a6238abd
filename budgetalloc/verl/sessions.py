"""The rollouts of a verl batch, in which a rollout may have several rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from budgetalloc.budget import IntArray

__all__ = ["Sessions"]


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

        Args:
            keys: verl's key of each row, "{uid}_{session}_{output}".
            tags: Its tags.
            uids: The groups of the step; by default those of the rows, as they first appear.
        """
        # of each session: outputs and their rows
        rows: dict[tuple[int, int], list[tuple[int, int]]] = {}
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
        lengths_K = np.array([tag["response_len"] for tag in tags], dtype=np.int64)
        mine_K = session_K >= 0
        return cls(
            uids_R=[uids[group] for group, _ in ordered],
            last_R=np.array([max(rows[name])[1] for name in ordered], dtype=np.int64),
            lengths_R=np.bincount(session_K[mine_K], lengths_K[mine_K], len(ordered)).astype(
                np.int64
            ),
            prompts_R=np.array(
                [tags[min(rows[name])[1]].get("prompt_len", 0) for name in ordered], dtype=np.int64
            ),
            session_K=session_K,
        )

"""From a table of any program to rollouts: a row is a rollout or a group, and the columns are found
by their names, or named by the user. Every kind of log ends here."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from budgetalloc.beliefs.rewards import LARGEST_REWARD
from budgetalloc.errors import InputError, short_repr
from budgetalloc.logs import facts
from budgetalloc.logs.cells import (
    OWN,
    Asked,
    distinct,
    each,
    known_id,
    listed,
    numbers,
    of_type,
    plain,
    there,
    types,
    weighted,
)
from budgetalloc.logs.columns import objects
from budgetalloc.logs.records import FAULTS, LARGEST, NO_STEPS, Notes

# The names of each column, the preferred one first. Case does not matter, nor "-" for "_".
_STEP = ("step", "global_step", "training_step", "train_step", "iteration", "visit")
_ID = ("prompt_id", "example_id", "problem_id", "question_id", "task_id", "prompt_idx")
_NUMBERED = ("id", "index")  # these may number prompts or rows
_TEXT = ("prompt", "question", "problem", "input")
_SUCCESSES = [
    "successes",
    "num_correct",
    "n_correct",
    "correct",
    "passes",
    "passed",
    "solved",
    "success",
]
_MANY = ("n", "samples", "attempts", "trials")  # these may count rollouts, or number them
_ROLLOUTS = [*["rollouts", "num_rollouts", "n_rollouts", "num_samples", "n_samples"], *_MANY]
_REWARD = ("reward", "score", "correct", "passed", "success")
_REWARDS = ("rewards", "scores")
_LENGTH = [
    "length",
    "completion_length",
    "response_length",
    "completion_tokens",
    "output_tokens",
    "num_tokens",
]
_VERDICTS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "pass": 1.0, "fail": 0.0, "timeout": 0.0}
_WIDE = re.compile(r"(reward|score)s?_?\d+")
_INTEGER = re.compile(r"0|-?[1-9]\d{0,299}")  # as JSON writes it
_ENOUGH = 8  # rows that allow an inference
_MOST = 100_000  # rollouts of a row
_SOME = 64  # rows that tell what a column holds
RENAME = "Columns of counts have to be renamed: 'successes' and 'rollouts'."
SCORE = "score of "
"""Comes before the name of a reward function."""


@dataclass(frozen=True)
class Columns:
    """The names of the columns to use."""

    ids: tuple[str, ...]
    text: str | None
    """The column of the prompts' texts."""
    hashed: bool
    """Whether prompts are named by a hash of their text."""
    rewards: Mapping[str, float]
    """Columns of rewards, and their weights if the reward is their sum."""
    counts: tuple[str, ...]
    """Successes and rollouts of a group, if the table has them in place of rewards."""
    others: Mapping[str, str]
    """The columns of step, length, success, predicted, cost and trainer_step, where there are
    any."""
    grouped: bool
    """Whether a row may have several rollouts."""

    @property
    def used(self) -> list[str]:
        return list(dict.fromkeys([*self.others.values(), *self.ids, *self.rewards, *self.counts]))


def wanted(
    asked: Asked, columns: Mapping[str, bool], *, numbers: bool = False
) -> tuple[set[str], str | None]:
    """The columns of a table that are read, and the one that holds responses. `columns` says which
    hold numbers; with `numbers`, all of those are read."""
    known = {*_STEP, *_ID, *_NUMBERED, *_TEXT, *_SUCCESSES, *_ROLLOUTS, *_REWARD, *_REWARDS}
    known |= {*_LENGTH, "predicted", "cost", "trainer_step", "domain"}
    ids = [number for name, number in columns.items() if plain(name) in (*_ID, *_NUMBERED)]
    ids += [columns[name] for name in asked.prompts if name in columns]
    read = {
        name
        for name, number in columns.items()
        if name in asked.names
        or plain(name) in known
        or _WIDE.fullmatch(plain(name))
        or facts.wanted(name, ids_are_numbers=any(ids))
        or (numbers and number)
    }
    responses = [name for name in columns if facts.is_response(name) and name not in read]
    response = "completion" if "completion" in responses else next(iter(responses), None)
    return read, response


def columns_of(frame: pd.DataFrame, asked: Asked) -> Columns | None:
    """The columns of a table; None where it has no prompts or no rewards.

    Raises:
        InputError: an argument names a column that the table lacks.
    """
    by_name = {plain(name): str(name) for name in reversed(frame.columns)}

    def one(choices: Sequence[str]) -> str | None:
        return next((by_name[x] for x in choices if x in by_name), None)

    def several(choices: Sequence[str]) -> tuple[str, ...]:
        return tuple(filter(None, [one(choices)]))

    def counted(choices: Sequence[str]) -> tuple[str, ...]:
        names = [by_name[x] for x in choices if x in by_name]
        return tuple([name for name in names if _counts(frame[name])] or names)[:1]

    ids = several(_ID) or several(_TEXT) or several(_NUMBERED)
    hashed = asked.prompt is None and not several(_ID) and one(_TEXT) is not None
    if asked.prompt is not None:
        ids = (asked.prompt,) if asked.prompt in frame.columns else asked.prompts[1:]
    weights = dict(asked.reward) if isinstance(asked.reward, Mapping) else {}
    named = weights or ({asked.reward: 1.0} if isinstance(asked.reward, str) else {})
    for argument, names in (("prompt", ids), ("reward", named)):
        for name in names:
            there(frame, argument, name)
    counts = (*counted(_SUCCESSES), *counted(_ROLLOUTS))
    counts = counts if not named and len(counts) == 2 else ()
    wide = [name for name in map(str, frame.columns) if _WIDE.fullmatch(plain(name))]
    rewards = named or dict.fromkeys(several(_REWARD) or several(_REWARDS) or wide, 1.0)
    rewards = {} if counts else rewards
    if not ids or not (rewards or counts):
        return None
    others = {"step": one(_STEP), "length": one(_LENGTH)}
    others |= {name: one((name,)) for name in ("predicted", "cost", "trainer_step")}
    others |= {
        name: there(frame, name, given)
        for name in ("step", "length", "success")
        if (given := getattr(asked, name)) is not None
    }
    if others["step"] in ids:
        others["step"] = None
    found = {key: name for key, name in others.items() if name is not None}
    grouped = bool(counts) or (len(rewards) > 1 and not weights)
    columns = Columns(ids, one(_TEXT), hashed, rewards, counts, found, grouped)
    if len(rewards) == 1 and not weights and not _in_lists(frame, columns):
        ((name, _),) = rewards.items()
        kinds = types(frame[name])
        grouped = list in kinds or (plain(name) in _REWARDS and str in kinds)
        columns = replace(columns, grouped=grouped)
    return columns


def _counts(cells: pd.Series) -> bool:
    """Whether a column may hold counts, and not a list or a text for each row."""
    some = cells.head(_SOME)
    lists = of_type(some, list, dict).any()
    return not lists and not (len(some) > 0 and numbers(some)[1].all())


def rollouts(frame: pd.DataFrame, asked: Asked, path: Path, notes: Notes) -> pd.DataFrame:
    """The rollouts of a table, with the reward by each function. Rows that cannot be used are left
    out and counted. The index has the number of the row that each rollout came from."""
    columns = columns_of(frame, asked)
    if columns is None:
        raise InputError(
            f"source={str(path)!r} has the columns {listed(frame.columns)}: one must name prompts, "
            "and one must hold rewards, or two successes and rollouts. Pass prompt= and reward= "
            "with the names of these columns, and step= and length= if there are some (--prompt, "
            f"--reward, --step, --length). {RENAME}",
            argument="source",
        )
    if columns.grouped and len(columns.rewards) == 1:
        name = next(iter(columns.rewards))
        if _of_tokens(frame[name]):
            frame = frame.assign(**{name: frame[name].map(sum)})
            columns = replace(columns, grouped=False)
            notes.doubt(
                f"column {name!r} holds lists that are 0 up to their last number: each is taken as "
                "the scores of one rollout's tokens, and its sum as the reward",
                len(frame),
            )
    if columns.grouped and "success" in columns.others:
        raise InputError(
            "success",
            "a row of this log is a group, and a success column needs "
            "one row per rollout. Leave out success=.",
            asked.success,
        )
    columns = _counts_or_numbers(frame, columns, notes)
    _doubt_ids(frame, columns, notes)
    own = frame.filter(regex=f"^{OWN}")
    alike = [name for name in frame.columns if plain(name) in (*_TEXT, *_REWARDS, "domain")]
    notes.unused(frame, [*columns.used, *alike, *_numbered(frame, columns), *own])
    untyped = frame.attrs.get("untyped", False)
    if lists := _in_lists(frame, columns):
        frame = frame.explode(lists, ignore_index=True)
    own = frame.filter(regex=f"^{OWN}")
    if not columns.grouped:
        own = own.join(facts.add_facts(frame, columns.used))
    if len(columns.ids) == 1 and not columns.hashed:
        own = own.join(facts.add_contents(frame, columns.ids[0]))
    lengths = None  # a list of each group
    out, odd_R = pd.DataFrame(index=frame.index), np.zeros(len(frame), dtype=bool)
    for key, name in columns.others.items():
        if key == "length" and columns.grouped and of_type(frame[name], list).all():
            lengths = frame[name]
            continue
        out[key], bad_R = _checked(frame, key, name, notes)
        odd_R |= bad_R
    if "step" in out:
        odd_R |= ~((out["step"].abs() <= LARGEST) & (out["step"] % 1 == 0))
    if "length" in out:
        odd_R |= out["length"].abs() > LARGEST
        out["length"] = out["length"].where(out["length"] >= 0)
    scores = pd.DataFrame(index=frame.index)
    for name in columns.rewards if not columns.grouped else ():
        scores[name], bad_R = _checked(frame, "reward", name, notes)
        odd_R |= bad_R
    cells = _cells(frame, columns) if columns.grouped else weighted(scores, columns.rewards)
    out["reward"] = pd.Series(cells, out.index)
    out = out.join(scores.add_prefix(SCORE)).join(own)
    if columns.grouped:
        odd_R |= out["reward"].isna().to_numpy()
    codes_R, names = _ids(frame, columns, untyped)
    texts = [x for x in names if isinstance(x, str)]
    if not untyped and len(texts) < len(names) and any(map(str.isdecimal, texts)):
        notes.doubt(
            "ids of prompts are numbers in some rows and digits as text in others: were they "
            "changed on the way, as mlflow does in tables as JSON?",
            len(frame),
        )
    out["prompt"] = pd.Categorical.from_codes(codes_R, names)
    if columns.text is not None:
        out["text"] = frame[columns.text]
    if "domain" in frame:
        out["domain"] = frame["domain"]
    notes.note("row without a prompt", (codes_R < 0).sum())
    notes.note("broken row", ((codes_R >= 0) & odd_R).sum())
    if lengths is not None:
        out["length"] = lengths
    out = out[(codes_R >= 0) & ~odd_R]
    if columns.grouped:
        out = _expanded(out, notes)
    infinite_R = out["reward"].abs() > LARGEST_REWARD
    notes.note("infinite reward", infinite_R.sum())
    return out.assign(reward=out["reward"].mask(infinite_R), grouped=columns.grouped)


def doubt_rewards(rows: pd.DataFrame, notes: Notes) -> None:
    """Notes rewards that may be counts: whole numbers above 1, one for each prompt of a step."""
    known = rows["reward"].dropna()
    whole = known.max() > 1 and (known % 1 == 0).all() and (known >= 0).all()
    if not whole or len(known) < _ENOUGH or rows["grouped"].any():
        return
    if (np.bincount(groups_of(rows)) == 1).all():
        names = [name.removeprefix(SCORE) for name in rows if name.startswith(SCORE)]
        notes.doubt(
            f"column {' and '.join(map(repr, names))} holds whole numbers up to {known.max():g}, "
            f"one for each prompt: does it count successes? {RENAME}",
            len(known),
        )


def _checked(frame: pd.DataFrame, argument: str, name: str, notes: Notes) -> Any:
    """As `numbers`, and verdicts as scores; raises `InputError` if the column holds something else
    only."""
    column, odd = numbers(frame[name])
    texts = odd.any() and argument in ("reward", "success") and of_type(frame[name][odd], str).all()
    if texts and set(frame[name][odd]) <= {*_VERDICTS}:
        column = np.where(odd, each(frame[name], _VERDICTS.get).astype(np.float64), column)
        notes.note(f"verdicts of {name!r} taken as {_VERDICTS}", odd.sum())
        odd = np.zeros_like(odd)
    if odd.any() and odd.all():
        raise InputError(
            f"{argument}={name!r}: the column holds no numbers, but "
            f"{short_repr(frame[name].iloc[0])} "
            f"and the like. Name another one of {listed(frame.columns)}.",
            argument=argument,
        )
    return column, odd


def with_steps(rows: pd.DataFrame, notes: Notes) -> pd.DataFrame:
    """The rollouts with a step. Without a column of steps, the rows of a prompt that are groups are
    its visits."""
    if "step" in rows:
        return rows
    if not rows["grouped"].any():
        notes.doubt(NO_STEPS)
        return rows.assign(step=0.0)
    notes["no column of steps: the rows of a prompt are taken as its visits"] = 1
    first = rows["prompt"].cat.codes[~rows.index.duplicated()]
    return rows.assign(step=first.groupby(first).cumcount().reindex(rows.index).astype(float))


def groups_of(rows: pd.DataFrame) -> NDArray[np.int64]:
    """For each rollout the number of its group, in order of first appearance.

    >>> prompts = pd.Categorical(["a", "b", "a"])
    >>> groups_of(pd.DataFrame({"step": [4.0, 4.0, 5.0], "prompt": prompts}))
    array([0, 1, 2])
    """
    at_R = rows["prompt"].cat.codes.to_numpy().astype(np.int64)
    for name in ("step", *(["group"] if "group" in rows else [])):
        other_R, found = pd.factorize(rows[name])
        at_R = at_R * len(found) + other_R
    return np.asarray(pd.factorize(at_R)[0])


def with_groups(rows: pd.DataFrame, size_R: pd.Series | int) -> pd.DataFrame:
    """The rollouts with the number of their group among those of their prompt in the step, if a
    prompt has several: so many rollouts, in the log's order, are a group.

    >>> prompts = pd.Categorical(["a", "a", "b", "b", "a", "a"])
    >>> rows = pd.DataFrame({"step": 0, "prompt": prompts})
    >>> with_groups(rows, 2)["group"].tolist()
    [0, 0, 0, 0, 1, 1]
    """
    groups_R = groups_of(rows)
    if isinstance(size_R, int) and np.bincount(groups_R).max(initial=0) <= size_R:
        return rows
    at_R = rows.groupby(groups_R, sort=False).cumcount()
    group_R = (at_R // np.maximum(size_R, 1)).fillna(0).astype(np.int64)
    return rows.assign(group=group_R) if group_R.any() else rows


def _numbered(frame: pd.DataFrame, columns: Columns) -> list[str]:
    """A column 'id' or 'index' next to the texts of prompts."""
    return [str(x) for x in frame.columns if columns.hashed and plain(x) in _NUMBERED][:1]


def _doubt_ids(frame: pd.DataFrame, columns: Columns, notes: Notes) -> None:
    own = columns.ids[0]
    for name in _numbered(frame, columns):
        notes.doubt(
            f"prompts are named by column {own!r}; prompt={name!r} names them by column {name!r}",
            len(frame),
        )
    if plain(own) in _NUMBERED and not columns.grouped and len(frame) >= _ENOUGH:
        alone = frame[own].map(str).is_unique
        notes.doubt(
            f"no value of the column {own!r} comes twice: does it number rows? Name the column of "
            "prompts with prompt=",
            len(frame) if alone else 0,
        )


def _counts_or_numbers(frame: pd.DataFrame, columns: Columns, notes: Notes) -> Columns:
    """The columns, after a check whether one such as `n` counts rollouts or numbers them."""
    if not columns.counts or plain(columns.counts[1]) not in _MANY:
        return columns
    passed, count = columns.counts
    n_G = pd.Series(numbers(frame[count])[0], frame.index)
    if not set(numbers(frame[passed])[0].tolist()) <= {0.0, 1.0}:
        return columns
    step = columns.others.get("step")
    keys = [frame[name].map(str) for name in (*([step] if step else []), *columns.ids)]
    size_G = n_G.groupby(keys).transform("size")
    again_G = pd.concat([n_G, *keys], axis=1, keys=range(len(keys) + 1)).duplicated()
    if not again_G.any() and size_G.max() > 1 and (n_G <= size_G).all():
        notes.doubt(
            f"column {count!r} numbers the rollouts of a prompt: a row is read as one rollout with "
            f"the reward {passed!r}",
            len(frame),
        )
        return replace(columns, rewards={passed: 1.0}, counts=(), grouped=False)
    if len(frame) >= _ENOUGH and n_G.max() > 1:
        notes.doubt(
            f"columns {passed!r} and {count!r} are read as successes of so many rollouts; if a row "
            f"is one rollout, pass reward={passed!r}",
            len(frame),
        )
    return columns


def _of_tokens(cells: pd.Series) -> bool:
    """Whether lists hold the scores of tokens, of which the last one has the rollout's."""
    lists = [x for x in cells if isinstance(x, list) and len(x) > 1]
    real = all(isinstance(x, (int, float)) for each in lists for x in each)
    if len(lists) < _ENOUGH or len(lists) < len(cells) or not real:
        return False
    ends = sum(x[-1] != 0 for x in lists)
    return ends > 1 and len(set(map(len, lists))) > 1 and not any(any(x[:-1]) for x in lists)


def _in_lists(frame: pd.DataFrame, columns: Columns) -> list[str]:
    """The columns of lists, if the prompt and the rewards of each row are lists of one length."""
    if not columns.rewards or not of_type(frame[columns.ids[0]], list).all():
        return []
    own = frame[columns.ids[0]].map(len)

    def fits(name: str) -> bool:
        cells = frame[name]
        lists = of_type(cells, list).all()
        return bool(lists and cells.map(len).equals(own))

    return list(filter(fits, frame.columns)) if all(map(fits, columns.rewards)) else []


def _ids(
    frame: pd.DataFrame, columns: Columns, untyped: bool
) -> tuple[NDArray[np.int64], pd.Index]:
    """The prompt of each row as a place among the distinct ids, -1 for none. Several columns are
    joined by a slash, as in "aime24/7"."""

    def known(cell: Any) -> Any:
        if untyped and isinstance(cell, str) and _INTEGER.fullmatch(cell) and not columns.hashed:
            return int(cell)  # in a CSV an integer is text
        return known_id(cell, is_text=columns.hashed)

    if len(columns.ids) == 1:
        at_R, cells = distinct(frame[columns.ids[0]])
        place, names = pd.factorize(objects([*map(known, cells), None]))
        return place[at_R], pd.Index(names, dtype=object)
    rows = zip(*(each(frame[name], known) for name in columns.ids), strict=True)
    joined = [None if None in row else "/".join(map(str, row)) for row in rows]
    place, names = pd.factorize(objects(joined))
    return place, pd.Index(names, dtype=object)


def _cells(frame: pd.DataFrame, columns: Columns) -> list[Any]:
    """The list of rewards of each row, None for a broken row."""
    if columns.counts:
        (passed_G, _), (n_G, _) = (numbers(frame[name]) for name in columns.counts)
        good_G = (passed_G >= 0) & (passed_G <= n_G) & (n_G <= _MOST)
        good_G &= (passed_G % 1 == 0) & (n_G % 1 == 0)
        return [
            [1.0] * int(passed) + [0.0] * int(n - passed) if good else None
            for passed, n, good in zip(passed_G, n_G, good_G, strict=True)
        ]
    if len(columns.rewards) == 1:
        return [_rewards(cell) for cell in frame[next(iter(columns.rewards))].tolist()]
    values, odd = zip(*(numbers(frame[name]) for name in columns.rewards), strict=True)
    rows = zip(np.stack(values, axis=1), np.any(odd, axis=0), strict=True)
    # an empty cell is no rollout
    return [None if bad else x[~np.isnan(x)].tolist() for x, bad in rows]


def _rewards(cell: Any) -> list[float] | None:
    """The rewards in one cell: a number, a list, JSON, or a digit 0 or 1 for each rollout."""
    try:
        if isinstance(cell, str):
            text = cell.strip()
            separated = text.replace(";", " ").replace(",", " ").split()
            cell = json.loads(text) if text.startswith("[") else separated
            if text and set(text) <= {"0", "1"}:
                cell = list(text)
        if isinstance(cell, (int, float)):
            cell = [cell]
        if not isinstance(cell, list):
            return None
        return [math.nan if x is None else float(x) for x in cell]
    except FAULTS:
        return None


def _expanded(out: pd.DataFrame, notes: Notes) -> pd.DataFrame:
    none = out["reward"].map(len) == 0
    notes.note("row of no rollouts", none.sum())
    if "step" in out:
        again = len(out) - len(np.unique(groups_of(out)))
        notes.doubt(
            "second row of a prompt in one step: do several columns together name a prompt?", again
        )
    out = out[~none.astype(bool)]
    if "length" in out and out["length"].map(type).isin([list]).any():
        fits = out["length"].map(len) == out["reward"].map(len)
        unknown = out["reward"].map(lambda rewards: [math.nan] * len(rewards))
        out = out.assign(length=out["length"].where(fits, unknown)).explode(["reward", "length"])
        out["length"] = numbers(out["length"])[0]
        out["length"] = out["length"].where(out["length"].between(0, LARGEST))
    else:
        out = out.explode("reward")
    return out.assign(reward=out["reward"].astype(np.float64))

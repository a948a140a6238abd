"""Tables of any program: a row is a rollout or a group, and the columns are found by their
names."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from budgetalloc.beliefs.ids import text_id
from budgetalloc.errors import InputError
from budgetalloc.logs.cells import Asked, clean, hashed, numbers, there, weighted
from budgetalloc.logs.frames import listed
from budgetalloc.logs.records import FAULTS, Notes, as_id

__all__ = [
    "ID",
    "REWARD",
    "ROLLOUTS",
    "STEP",
    "SUCCESSES",
    "Columns",
    "identify",
    "refused",
    "rows",
    "with_steps",
]

# The names of each column, the preferred one first. Case does not matter, nor "-" for "_".
STEP = ("step", "global_step", "training_step", "train_step", "iteration", "visit")
ID = ("prompt_id", "example_id", "problem_id", "question_id", "task_id", "prompt_idx")
_NUMBERED = ("id", "index")  # these may number prompts or rows
_TEXT = ("prompt", "question", "problem", "input")
SUCCESSES = (
    "successes",
    "num_correct",
    "n_correct",
    "correct",
    "passes",
    "passed",
    "solved",
    "success",
)
ROLLOUTS = (
    "rollouts",
    "num_rollouts",
    "n_rollouts",
    "samples",
    "num_samples",
    "n_samples",
    "trials",
    "attempts",
    "n",
)
# these may count the rollouts of a row, or number the rollouts
_MANY = ("n", "samples", "attempts", "trials")
REWARD = ("reward", "score", "correct", "passed", "success")
_REWARDS = ("rewards", "scores")
_LENGTH = (
    "length",
    "completion_length",
    "response_length",
    "completion_tokens",
    "output_tokens",
    "num_tokens",
)
_WIDE = re.compile(r"(reward|score)s?_?\d+")
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
_ENOUGH = 8  # rows that allow an inference
_MOST = 100_000  # rollouts of a row
_NONSENSE = 10**9
_BROKEN = "not a number"


@dataclass(frozen=True)
class Columns:
    """The names of the columns to use.

    Args:
        text: Whether `ids` is a column of texts.
        weights: Weights of `rewards`, if the reward is their sum.
        several: Whether a cell of the only column of `rewards` may hold several rewards.
        numbered: A column 'id' or 'index' that is not used, because the texts of prompts identify
            them.
    """

    step: str | None
    ids: tuple[str, ...]
    text: bool
    rewards: tuple[str, ...]
    weights: Mapping[str, float] | None
    several: bool
    successes: str | None
    rollouts: str | None
    success: str | None
    length: str | None
    predicted: str | None
    numbered: str | None

    @property
    def used(self) -> list[str]:
        """The columns to read."""
        every = [self.step, *self.ids, *self.rewards, self.successes, self.rollouts]
        every += [self.success, self.length, self.predicted]
        return [name for name in dict.fromkeys(every) if name is not None]

    @property
    def groups(self) -> bool:
        """Whether a row may have several rollouts."""
        return (
            self.successes is not None
            or self.several
            or (len(self.rewards) > 1 and not self.weights)
        )


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def identify(frame: pd.DataFrame, asked: Asked) -> Columns | None:
    """The columns of a table; None where it has no prompts or no rewards.

    Raises:
        InputError: an argument names a column that the table lacks.
    """
    names = [str(name) for name in frame.columns]
    by_name = {_plain(name): name for name in reversed(names)}

    def one(choices: Sequence[str]) -> str | None:
        return next((by_name[x] for x in choices if x in by_name), None)

    def named(argument: str, given: str | None, choices: Sequence[str]) -> str | None:
        return one(choices) if given is None else str(there(frame, argument, given).name)

    ids, text, numbered = _ids_asked(frame, asked.prompt), False, None
    if not ids:
        found = one(ID)
        if found is None:
            text, numbered = one(_TEXT) is not None, one(_NUMBERED)
            found, numbered = one(_TEXT) or numbered, numbered if text else None
        ids = () if found is None else (found,)
    weights = dict(asked.reward) if isinstance(asked.reward, Mapping) else None
    rewards = tuple(weights or ()) or (() if asked.reward is None else (str(asked.reward),))
    for name in rewards:
        there(frame, "reward", name)
    successes, rollouts = one(SUCCESSES), one(ROLLOUTS)
    if rewards or successes is None or rollouts is None:
        successes = rollouts = None
        if not rewards:
            single = one(REWARD) or one(_REWARDS)
            rewards = (
                (single,)
                if single is not None
                else tuple(x for x in names if _WIDE.fullmatch(_plain(x)))
            )
    if not ids or not (rewards or successes):
        return None
    step = named("step", asked.step, STEP)
    several = len(rewards) == 1 and weights is None and _plain(rewards[0]) in _REWARDS
    columns = Columns(
        step=None if step in ids else step,
        ids=ids,
        text=text,
        rewards=rewards,
        weights=weights,
        several=several,
        successes=successes,
        rollouts=rollouts,
        success=None if asked.success is None else named("success", asked.success, ()),
        length=named("length", asked.length, _LENGTH),
        predicted=one(("predicted",)),
        numbered=numbered,
    )
    if columns.success is not None and columns.groups:
        raise InputError(
            f"success={columns.success!r}: a row of this log is a group, and a success column "
            "needs one row per "
            "rollout. Leave out success=."
        )
    return columns


def _ids_asked(frame: pd.DataFrame, prompt: str | None) -> tuple[str, ...]:
    if prompt is None:
        return ()
    wanted = (prompt,) if prompt in frame.columns else tuple(x.strip() for x in prompt.split(","))
    for name in wanted:
        there(frame, "prompt", name)
    return wanted


def _resolve(frame: pd.DataFrame, columns: Columns, notes: Notes) -> Columns:
    """The columns, where their names are ambiguous, by the first rows of the table. Each inference
    is a doubt."""
    if columns.numbered is not None:
        notes.doubt(
            f"prompts are named by column {columns.ids[0]!r}; prompt={columns.numbered!r} names "
            "them by column "
            f"{columns.numbered!r}",
            len(frame),
        )
    if len(columns.rewards) == 1 and columns.weights is None:
        lists = any(isinstance(x, (list, tuple)) for x in frame[columns.rewards[0]])
        numeric = frame[columns.rewards[0]].map(lambda x: isinstance(x, (int, float))).all()
        columns = replace(columns, several=lists or (columns.several and not numeric))
    if columns.successes is not None:
        return _counts_or_numbers(frame, columns, notes)
    if _plain(columns.ids[0]) in _NUMBERED and not columns.groups and len(frame) >= _ENOUGH:
        alone = frame[columns.ids[0]].map(str).nunique() == len(frame)
        notes.doubt(
            f"no value of the column {columns.ids[0]!r} comes twice in the first rows: does it "
            "number rows? Name "
            "the column of prompts with prompt=",
            len(frame) if alone else 0,
        )
    return columns


def _counts_or_numbers(frame: pd.DataFrame, columns: Columns, notes: Notes) -> Columns:
    """The columns, after a check whether one such as `n` counts rollouts or numbers them. Successes
    must be 0 or 1."""
    passed, count = str(columns.successes), str(columns.rollouts)
    passed_G, n_G = numbers(frame[passed])[0], numbers(frame[count])[0]
    if _plain(count) not in _MANY or not set(passed_G[~np.isnan(passed_G)].tolist()) <= {0.0, 1.0}:
        return columns
    keys = [
        frame[name].map(str).to_numpy()
        for name in (*([columns.step] if columns.step else []), *columns.ids)
    ]
    held = [x.tolist() for _, x in pd.Series(n_G).groupby(keys, sort=False)]
    whole = held[:-1] or held  # the last prompt may continue in the next rows
    counted = any(
        all(sorted(x) == list(range(start, start + len(x))) for x in whole)
        and max(map(len, whole), default=0) > 1
        for start in (0, 1)
    )
    if counted:
        notes.doubt(
            f"column {count!r} numbers the rollouts of a prompt: a row is read as one rollout with "
            "the reward "
            f"{passed!r}",
            len(n_G),
        )
        return replace(columns, rewards=(passed,), successes=None, rollouts=None)
    if len(n_G) >= _ENOUGH and np.nanmax(n_G, initial=0) > 1:
        notes.doubt(
            f"columns {passed!r} and {count!r} are read as successes of so many rollouts; if a row "
            "is one rollout, "
            f"pass reward={passed!r}",
            len(n_G),
        )
    return columns


def rows(frame: pd.DataFrame, asked: Asked, path: Any, notes: Notes) -> pd.DataFrame:
    """The rollouts of a table. The index has the number of the row that each came from."""
    columns = _settled(frame, asked, path, notes)
    untyped = frame.attrs.get("untyped", False)
    frame = _exploded(frame, columns)
    names = {"step": columns.step, "length": columns.length, "predicted": columns.predicted}
    names["success"] = columns.success
    out = pd.DataFrame(
        {key: frame[name] for key, name in names.items() if name is not None}, index=frame.index
    )
    out["prompt"] = pd.Series(_ids(frame, columns, untyped), dtype=object, index=frame.index)
    if columns.text:
        out["text"] = frame[columns.ids[0]]
    if "domain" in frame:
        out["domain"] = frame["domain"]
    several = _several(frame, columns)
    if several is None:
        values, bad = zip(*(numbers(frame[name]) for name in columns.rewards), strict=True)
        scores = pd.DataFrame(dict(zip(columns.rewards, values, strict=True)), index=frame.index)
        total_R = weighted(scores, columns.weights or {columns.rewards[0]: 1.0})
        out["reward"] = (
            pd.Series(total_R, index=frame.index).astype(object).mask(np.any(bad, axis=0), _BROKEN)
        )
        return out
    broken = several.map(lambda cell: len(cell) == 1 and cell[0] == _BROKEN)
    out = clean(
        out.assign(reward=pd.Series(0.0, index=out.index).astype(object).mask(broken, _BROKEN)),
        notes,
    )
    several = several[out.index]
    size_G = several.map(len).to_numpy()
    many_G, none_G = size_G > _MOST, size_G == 0
    notes.note(f"row of more than {_MOST:,} rollouts, left out", int(many_G.sum()))
    notes.note("row of no rollouts", int(none_G.sum()))
    if "step" in out:
        again = out.duplicated(["step", "prompt"])
        notes.doubt(
            "second row of a prompt in one step: do several columns together name a prompt?",
            int(again.sum()),
        )
    return out.assign(reward=several)[~(many_G | none_G)].explode("reward")


def _settled(frame: pd.DataFrame, asked: Asked, path: Any, notes: Notes) -> Columns:
    """The columns of a table with these names. The first rows settle what is ambiguous."""
    names = tuple(map(str, frame.columns))
    if names not in asked.settled:
        found = identify(frame, asked)
        if found is None:
            raise refused(frame, str(path))
        asked.settled[names] = _resolve(_exploded(frame, found), found, notes)
    columns: Columns = asked.settled[names]
    if names != next(iter(asked.settled)):
        notes.note("row of a file with other columns than the first one", len(frame))
    alike = (*_TEXT, *_REWARDS, "domain", columns.numbered and _plain(columns.numbered))
    for name in names:
        if name not in columns.used and _plain(name) not in alike:
            notes.unknown(name, len(frame))
    return columns


def _exploded(frame: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """The table with a row for each entry, if prompt and reward are lists of one length in each
    cell."""
    prompt, reward = columns.ids[0], (columns.rewards or ("",))[0]
    cells = frame[prompt].tolist()
    if reward == "" or not cells or not all(isinstance(x, list) for x in (*cells, *frame[reward])):
        return frame
    if any(len(x) != len(y) for x, y in zip(cells, frame[reward], strict=True)):
        return frame
    sizes = [len(x) for x in cells]
    lists = [
        name
        for name in columns.used
        if all(
            isinstance(x, list) and len(x) == size
            for x, size in zip(frame[name], sizes, strict=True)
        )
    ]
    return frame[columns.used].explode(lists, ignore_index=True)


def _ids(frame: pd.DataFrame, columns: Columns, untyped: bool) -> list[Any]:
    """The prompt of each row, None for none. Several columns are joined by a slash, as in
    "aime24/7"."""
    cells = [frame[name].tolist() for name in columns.ids]
    if columns.text:
        return list(hashed(cells[0]))
    if len(cells) == 1:
        return [_id(x, untyped) for x in cells[0]]
    ids = [[_id(x, untyped) for x in row] for row in zip(*cells, strict=True)]
    return [None if None in row or "" in row else "/".join(map(str, row)) for row in ids]


def _id(cell: Any, untyped: bool) -> Any:
    """The id in a cell. Messages and other lists are hashed; in a CSV an integer is one, although
    it is text."""
    if isinstance(cell, (list, dict)):
        return text_id(cell)
    if isinstance(cell, str):
        return int(cell) if untyped and _INTEGER.fullmatch(cell) else cell
    try:
        return None if cell is None else as_id(cell)
    except FAULTS:
        return None


def _several(frame: pd.DataFrame, columns: Columns) -> pd.Series | None:
    """The rewards of each row as a list, a broken row as [_BROKEN]; None if each row is one
    rollout."""
    if columns.successes is not None and columns.rollouts is not None:
        (passed_G, bad_G), (many_G, odd_G) = (
            numbers(frame[columns.successes]),
            numbers(frame[columns.rollouts]),
        )
        with np.errstate(invalid="ignore"):
            odd_G = (
                odd_G | bad_G | ~((passed_G >= 0) & (passed_G <= many_G) & (many_G <= _NONSENSE))
            )
            odd_G |= (passed_G != np.floor(passed_G)) | (many_G != np.floor(many_G))
        pairs = zip(passed_G.tolist(), many_G.tolist(), odd_G.tolist(), strict=True)
        cells: list[Sequence[Any]] = [
            [_BROKEN]
            if odd
            else range(_MOST + 1)
            if many > _MOST
            else _ones_first(int(passed), int(many))
            for passed, many, odd in pairs
        ]
    elif columns.several and len(columns.rewards) == 1:
        cells = [_rewards(cell) for cell in frame[columns.rewards[0]]]
    elif columns.groups:
        values, odd = zip(*(numbers(frame[name]) for name in columns.rewards), strict=True)
        matrix, odd_G = np.stack(values, axis=1), np.any(odd, axis=0)  # an empty cell is no rollout
        cells = [
            [_BROKEN] if bad else x[~np.isnan(x)].tolist()
            for x, bad in zip(matrix, odd_G, strict=True)
        ]
    else:
        return None
    return pd.Series(cells, index=frame.index, dtype=object)


def _ones_first(passed: int, rollouts: int) -> list[float]:
    return [1.0] * passed + [0.0] * (rollouts - passed)


def _rewards(cell: Any) -> Sequence[Any]:
    """The rewards in one cell: a number, a list, JSON, or a digit 0 or 1 for each rollout."""
    try:
        if isinstance(cell, str):
            text = cell.strip()
            if text and set(text) <= {"0", "1"}:
                return [float(x) for x in text]
            cell = (
                json.loads(text)
                if text.startswith("[")
                else text.replace(";", " ").replace(",", " ").split()
            )
        if isinstance(cell, (int, float)):
            return [float(cell)]
        if isinstance(cell, Mapping):
            return [_BROKEN]
        return [math.nan if x is None else float(x) for x in cell]
    except FAULTS:
        return [_BROKEN]


def with_steps(rows: pd.DataFrame, asked: Asked, notes: Notes) -> pd.DataFrame:
    """The rollouts with a step. Without a column of steps, the rows of a prompt that are groups are
    its visits."""
    if "step" in rows:
        return rows
    if any(columns.groups for columns in asked.settled.values()):
        notes["no column of steps: the rows of a prompt are taken as its visits"] = 1
        first = rows["prompt"][~rows.index.duplicated()]
        visit = first.groupby(first).cumcount()
        return rows.assign(step=visit.reindex(rows.index).to_numpy(dtype=np.float64))
    note = "no column of steps: all rows of a prompt are taken as one group. If there is one, name it with step="
    notes.doubt(note, 1)
    return rows.assign(step=0.0)


def refused(frame: pd.DataFrame, source: str) -> InputError:
    """The error for a table whose columns are not known."""
    return InputError(
        f"source={source!r} has the columns {listed(list(frame.columns))}: one must name prompts, "
        "and one must hold "
        "rewards, or two successes and rollouts. Pass prompt= and reward= with the names of these "
        "columns, and step= "
        "and length= if there are some (--prompt, --reward, --step, --length)."
    )

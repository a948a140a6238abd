"""Identification of a table's columns (step, prompt, reward) by their names."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from budgetalloc.errors import InputError
from budgetalloc.logs.chunk import Reward
from budgetalloc.logs.log_stream import ReadOptions

__all__ = [
    "ID",
    "LENGTH",
    "NUMBERED",
    "PREDICTED",
    "REWARD",
    "REWARDS",
    "ROLLOUTS",
    "STEP",
    "SUCCESSES",
    "TEXT",
    "Columns",
    "identify_columns",
    "listed",
    "plain",
]

# The names of each column, the preferred one first. Case does not matter, nor "-" for "_".
STEP = ("step", "global_step", "training_step", "train_step", "iteration", "visit")
ID = ("prompt_id", "example_id", "problem_id", "question_id", "task_id", "prompt_idx")
NUMBERED = ("id", "index")
"""Names of a column that may number prompts or rows."""
TEXT = ("prompt", "question", "problem", "input")
SUCCESSES = ("successes", "num_correct", "n_correct", "correct", "passes", "passed", "solved", "success")
ROLLOUTS = ("rollouts", "num_rollouts", "n_rollouts", "samples", "num_samples", "n_samples", "trials", "attempts", "n")
REWARD = ("reward", "score", "correct", "passed", "success")
REWARDS = ("rewards", "scores")
LENGTH = ("length", "completion_length", "response_length", "completion_tokens", "output_tokens", "num_tokens")
PREDICTED = ("predicted",)
_WIDE = re.compile(r"(reward|score)s?_?\d+")


@dataclass(frozen=True)
class Columns:
    """The names of the columns to use.

    Args:
        text: Whether `ids` is a column of texts.
        weights: Weights of `rewards`, if the reward is their sum.
        several: Whether a cell of the only column of `rewards` holds several rewards.
        numbered: A column 'id' or 'index' that is not used, because the texts of prompts identify them.
    """

    step: str | None
    ids: tuple[str, ...]
    text: bool
    rewards: tuple[str, ...]
    weights: tuple[float, ...] | None
    several: bool
    successes: str | None
    rollouts: str | None
    success: str | None
    length: str | None
    predicted: str | None
    numbered: str | None
    unknown: tuple[str, ...]

    @property
    def used(self) -> list[str]:
        """The columns to read."""
        every = [self.step, *self.ids, *self.rewards, self.successes, self.rollouts]
        every += [self.success, self.length, self.predicted]
        return [name for name in dict.fromkeys(every) if name is not None]

    @property
    def groups(self) -> bool:
        """Whether a row may have several rollouts."""
        return self.successes is not None or self.several or (len(self.rewards) > 1 and not self.weights)


def plain(name: str) -> str:
    """A column's name, normalized for comparison."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def identify_columns(names: Sequence[str], options: ReadOptions = ReadOptions()) -> Columns | None:  # noqa: B008  # frozen
    """The columns of a table; None where it has no prompts or no rewards.

    Raises:
        InputError: an argument names a column that the table lacks, or the table has a used column twice.
    """
    by_name = {plain(name): name for name in reversed(names)}

    def one(choices: Sequence[str]) -> str | None:
        return next((by_name[x] for x in choices if x in by_name), None)

    ids, text, numbered = _id_columns(names, options.prompt_id), False, None
    if not ids:
        named = one(ID)
        if named is None:
            text, numbered = one(TEXT) is not None, one(NUMBERED)
            named = one(TEXT) or numbered
            numbered = numbered if text else None
        ids = () if named is None else (named,)
    rewards, weights = _reward_columns(names, options.reward)
    successes, rollouts = one(SUCCESSES), one(ROLLOUTS)
    if rewards or successes is None or rollouts is None:
        successes = rollouts = None
        if not rewards:
            wide = [name for name in names if _WIDE.fullmatch(plain(name))]
            single = one(REWARD) or one(REWARDS)
            rewards = (single,) if single is not None else tuple(wide)
    if not ids or not (rewards or successes):
        return None
    step, length, predicted = one(STEP), one(LENGTH), one(PREDICTED)
    step = None if step in ids else step
    success = None if options.success is None else _there((options.success,), names, "success", options.success)[0]
    several = len(rewards) == 1 and weights is None and plain(rewards[0]) in REWARDS
    redundant = {one(REWARDS), one(TEXT), numbered}  # these do not count as unknown
    columns = Columns(
        step, ids, text, rewards, weights, several, successes, rollouts, success, length, predicted, numbered, ()
    )
    for name in columns.used:
        if names.count(name) > 1:
            raise InputError(f"The log has the column {name!r} twice, in {listed(names)}: rename one of them.")
    if success is not None and columns.groups:
        raise InputError(
            f"success={success!r}: a row of this log is a group, and a success column needs one row per rollout. Leave "
            "out success=."
        )
    unknown = tuple(name for name in names if name not in columns.used and name not in redundant)
    return replace(columns, unknown=unknown)


def _id_columns(names: Sequence[str], prompt_id: str | None) -> tuple[str, ...]:
    if prompt_id is None:
        return ()
    wanted = (prompt_id,) if prompt_id in names else tuple(x.strip() for x in prompt_id.split(","))
    return _there(wanted, names, "prompt_id", prompt_id)


def _reward_columns(names: Sequence[str], reward: Reward) -> tuple[tuple[str, ...], tuple[float, ...] | None]:
    if reward is None:
        return (), None
    if isinstance(reward, str):
        return _there((reward,), names, "reward", reward), None
    return _there(tuple(reward), names, "reward", reward), tuple(float(x) for x in reward.values())


def _there(wanted: tuple[str, ...], names: Sequence[str], argument: str, value: Any) -> tuple[str, ...]:
    for name in wanted:
        if name not in names:
            raise InputError(f"{argument}={value!r}: the log has no column {name!r}, it has {listed(names)}.")
    return wanted


def listed(names: Sequence[str]) -> str:
    """The names of columns for the text of an error, at most 30 of them."""
    shown = [name if len(name) <= 80 else f"{name[:77]}..." for name in names[:30]]
    return f"{shown}" if len(names) <= 30 else f"{shown} and {len(names) - 30:,} more"

"""Which column of a table is the step, the prompt, the reward, by its name."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from budgetalloc.errors import InputError
from budgetalloc.logs.base import Reward

# Names of each column in order of preference; case does not matter, nor "-" for "_".
STEP = ("step", "global_step", "training_step", "train_step", "iteration", "visit")
ID = ("prompt_id", "example_id", "problem_id", "question_id", "task_id", "prompt_idx", "id", "index")
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
    """The names of the columns that are used; `text` where `ids` is one of texts, `weights` where rewards are added."""

    step: str | None
    ids: tuple[str, ...]
    text: bool
    rewards: tuple[str, ...]
    weights: tuple[float, ...] | None
    successes: str | None
    rollouts: str | None
    length: str | None
    predicted: str | None
    unknown: tuple[str, ...]

    @property
    def used(self) -> list[str]:
        """The columns to read."""
        every = [self.step, *self.ids, *self.rewards, self.successes, self.rollouts, self.length, self.predicted]
        return [name for name in dict.fromkeys(every) if name is not None]

    @property
    def groups(self) -> bool:
        """Whether a row may have several rollouts."""
        one = len(self.rewards) == 1 and _plain(self.rewards[0]) not in REWARDS
        return self.successes is not None or not (one or self.weights)


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def identify(names: Sequence[str], prompt_id: str | None = None, reward: Reward = None) -> Columns | None:
    """The columns of a table; None where it has no prompts or no rewards.

    Raises:
        InputError: `prompt_id` or `reward` names a column that is not there.
    """
    plain = {_plain(name): name for name in reversed(names)}

    def one(choices: Sequence[str]) -> str | None:
        return next((plain[x] for x in choices if x in plain), None)

    ids, text = _id_columns(names, prompt_id), False
    if not ids:
        named = one(ID)
        text = named is None
        named = named or one(TEXT)
        ids = () if named is None else (named,)
    rewards, weights = _reward_columns(names, reward)
    successes, rollouts = one(SUCCESSES), one(ROLLOUTS)
    if rewards or successes is None or rollouts is None:
        successes = rollouts = None
        if not rewards:
            wide = [name for name in names if _WIDE.fullmatch(_plain(name))]
            single = one(REWARD) or one(REWARDS)
            rewards = (single,) if single is not None else tuple(wide)
    if not ids or not (rewards or successes):
        return None
    step, length, predicted = one(STEP), one(LENGTH), one(PREDICTED)
    step = None if step in ids else step
    used = {step, *ids, *rewards, successes, rollouts, length, predicted}
    aside = {one(REWARDS), one(TEXT)}  # what says the same once more is not unknown
    unknown = tuple(name for name in names if name not in used and name not in aside)
    return Columns(step, ids, text, rewards, weights, successes, rollouts, length, predicted, unknown)


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
            raise InputError(f"{argument}={value!r}: the log has no column {name!r}, it has {list(names)}.")
    return wanted

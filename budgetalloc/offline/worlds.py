"""Worlds, which return rewards for requested rollouts without a language model."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.ids import Id, check_ids
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import (
    InputError,
    check_array,
    check_integer,
    check_list,
    check_number,
    check_seed,
    check_type,
    is_number,
    keywords,
    short_repr,
)

# of the gradient's norm, and of Adam: defaults of TRL's trainer
_CLIP, _BETA1, _BETA2, _EPS = 1.0, 0.9, 0.999, 1e-8
_FEATURE_NORM = 40.0  # large enough for the gradient to be clipped
_SPEED = 31.0  # factor of the learning rate: see `Task`


class World(Protocol):
    """The interface of a world for `simulate`."""

    @property
    def ids(self) -> list[Id]:
        """The prompts of the world."""

    def rollout(self, ids_R: Iterable[Any]) -> FloatArray:
        """Rewards of one new rollout of each of these prompts, shape (R,)."""

    def learn(self, advantages_R: ArrayLike) -> None:
        """One update from all rollouts since the last one, in their order."""

    def success(self) -> float:
        """The current success of the world's language model, in [0, 1]."""


@dataclass(frozen=True)
class Task:
    """The settings of a `Learner`. The preset is `U_SHAPE`.

    Defaults from `own` on were set so that *uniform* allocation has about the same curves as on the
    tiny language model of `budgetalloc demo`. No policies were compared to choose them.

    Args:
        skills: For each skill (right, wrong, shown): the right strategy, the wrong one or a tuple
            of equally likely wrong ones (0 to `strategies` - 1), and the initial probability of the
            right one, in (0, 1).
        coins: The probability of reward 1 of each trap, for any strategy.
        per_skill: Prompts of each skill and trap.
        held_out: Prompts of each skill that success is measured on.
        dims: Shared dimensions.
        own: Share of a prompt's features that its skill does not share with all other skills, in
            (0, 1): a small value gives much transfer and much interference.
        doubt: Strength of the shared direction that moves every skill away from its preferred
            strategy at the start.
        noise: Share of `own` that is the prompt's own, not its skill's, in [0, 1).
        offset: Standard deviation of a prompt's starting logits around its skill's.
        other: Initial probability of all strategies that are neither right nor wrong, in (0, 1), if
            there are any.
        strategies: Number of strategies, at least 4.

    >>> # eleven ways to be wrong: a failure teaches little about the twelfth
    >>> everything_else = tuple(range(1, 12))
    >>> world = Learner(Task(((0, everything_else, 0.12),), strategies=12, offset=0.0))
    >>> world.probabilities([0])[0, :3].round(2)
    array([0.12, 0.08, 0.08])
    """

    skills: tuple[tuple[int, int | tuple[int, ...], float], ...]
    coins: tuple[float, ...] = ()
    per_skill: int = 80
    held_out: int = 20
    dims: int = 32
    own: float = 0.018
    doubt: float = 0.25
    noise: float = 0.1
    offset: float = 1.0
    other: float = 0.005
    strategies: int = 8

    def __post_init__(self) -> None:
        if not check_list("skills", self.skills, "(right, wrong, shown) for each skill"):
            raise InputError(
                "skills=():", "nothing can be learned. Give (right, wrong, shown) each."
            )
        check_integer("strategies", self.strategies, 4, 10**3)
        for at, skill in enumerate(self.skills):
            if not _is_skill(skill, self.strategies):
                raise InputError(
                    f"skills[{at}]={short_repr(skill)}: give different strategies from 0 to "
                    f"{self.strategies - 1} and a probability between 0 and 1, such as "
                    "(0, 3, 0.25) or (0, (1, 2, 3), 0.25).",
                    argument="skills",
                )
        for name in ("per_skill", "held_out", "dims"):
            check_integer(name, getattr(self, name), 1, 10**5)
        bounds = {"own": (1e-6, 1), "noise": (0, 1), "other": (1e-12, 0.99)}
        for name, (low, high) in {**bounds, "doubt": (0, 9), "offset": (0, 9)}.items():
            check_number(name, getattr(self, name), low, high)
        for coin in check_list("coins", self.coins, "a probability for each trap"):
            check_number("coins", coin, 0, 1)


def _is_skill(skill: Any, strategies: int) -> bool:
    """Whether this is (right, wrong or a tuple of wrong ones, shown): different strategies and a
    probability."""
    if not isinstance(skill, (tuple, list)) or len(skill) != 3:
        return False
    right, wrong, chance = skill
    chosen = (right, *_all_of(wrong))
    if not all(is_number(x) for x in (*chosen, chance)):
        return False
    apart = 1 < len(chosen) == len(set(chosen)) and all(x in range(strategies) for x in chosen)
    return apart and 0 < chance < 1


def _all_of(wrong: Any) -> list[Any]:
    return list(wrong) if isinstance(wrong, (tuple, list)) else [wrong]


SHOWN = (
    *(0.98, 0.97, 0.96, 0.95, 0.93, 0.90, 0.86, 0.80),
    *(0.72, 0.64, 0.54, 0.44, 0.34, 0.25, 0.18, 0.12),
    *(0.08, 0.06, 0.05, 0.04, 0.03, 0.02, 0.01, 0.01),
)
"""The rates of the skills before training, here and in the demo's language: about half of all
groups of 8 are equal."""
# As in that language, every strategy is right for three skills: initially common, medium and rare.
_SKILLS = tuple((k % 8, (k + 3 + k // 8) % 8, start) for k, start in enumerate(SHOWN))
U_SHAPE = Task(_SKILLS, coins=(0.25, 0.12))
"""Skills from nearly mastered to nearly unknown, and two traps; 2,080 prompts."""


@keywords
class Learner:
    """A toy language model to screen ideas: a softmax policy over K strategies whose skills share
    all parameters.

    The logits of prompt i are `start_i + f_i @ theta[:, :K] + doubt_i * (c @ theta[:, K])`. The
    features f_i are the sum of a part c that all prompts have in common, a random part of the
    skill, and a small part of the prompt. Two skills with the same right strategy therefore help
    each other, and they hurt each other if one's right strategy is the other's wrong one. doubt_i
    points from the skill's preferred strategy at the start to the alternative, so rare skills help
    each other and hurt mastered ones. `learn` is one exact policy-gradient step by Adam with the
    gradient's norm clipped at 1, as in TRL's trainer.

    Args:
        task: The task to learn.
        rate: Learning rate, positive; 3e-4 resembles 3e-4 of the tiny language model.
        seed: Seeds features, prompts, rollouts and coins.

    Raises:
        InputError: an unknown id, a rate that is not positive, or not one finite advantage for each
            rollout.

    >>> world = Learner(seed=0)
    >>> len(world.ids), round(world.success(), 3)
    (2080, 0.447)
    >>> # a prompt of the first skill, and one of a rare skill
    >>> rewards_R = world.rollout([0] * 4 + [1900] * 4)
    >>> rewards_R
    array([1., 1., 1., 1., 0., 0., 0., 0.])
    >>> world.learn(rewards_R - 0.5)
    >>> world.rates([0, 1900]).round(3)
    array([0.999, 0.016])
    """

    def __init__(self, task: Task = U_SHAPE, *, rate: float = 3e-4, seed: int = 0) -> None:
        check_type("task", task, Task, "a Task, such as budgetalloc.offline.worlds.U_SHAPE")
        check_number("rate", rate, 0, np.inf, without=(0,))
        check_seed(seed)
        self.task, self.rate = task, rate
        self._rng = np.random.default_rng([seed, 0])
        build = np.random.default_rng([seed, 1])
        n = task.strategies
        traps = tuple((k % n, (k + 3) % n, 0.5) for k in range(len(task.coins)))
        right, wrong, start = zip(*task.skills, *traps, strict=True)
        self._right_S = np.array(right)
        self._coin_S = np.array([np.nan] * len(task.skills) + list(task.coins))
        each, n = np.arange(len(right)), task.dims
        self._common = _FEATURE_NORM * build.normal(size=n) / np.sqrt(n)
        own_SD = _FEATURE_NORM * build.normal(size=(len(right), n)) / np.sqrt(n)
        start_SK = np.empty((len(right), task.strategies))
        self._doubt_SK = np.zeros_like(start_SK)
        for k, alike in enumerate(map(_all_of, wrong)):
            rest = task.strategies - 1 - len(alike)
            start_SK[k] = np.log(task.other / max(rest, 1))
            known = np.log1p(-task.other) if rest else 0.0
            start_SK[k, alike] = np.log((1 - start[k]) / len(alike)) + known
            start_SK[k, right[k]] = np.log(start[k]) + known
            lean = start_SK[k, right[k]] - start_SK[k, alike[0]] - np.log(len(alike))
            self._doubt_SK[k, alike] = lean * task.doubt / 4
            self._doubt_SK[k, right[k]] = -lean * task.doubt / 4

        def prompts(skill_P: NDArray[np.int64]) -> _Prompts:
            noise_PD = _FEATURE_NORM * build.normal(size=(len(skill_P), n)) / np.sqrt(n)
            own_PD = np.sqrt(1 - task.noise) * own_SD[skill_P] + np.sqrt(task.noise) * noise_PD
            features_PD = np.sqrt(1 - task.own) * self._common + np.sqrt(task.own) * own_PD
            offset_PK = task.offset * build.normal(size=(len(skill_P), task.strategies))
            return _Prompts(skill_P, features_PD, start_SK[skill_P] + offset_PK)

        self._pool = prompts(np.repeat(each, task.per_skill))
        self._held_out = prompts(np.repeat(each[: len(task.skills)], task.held_out))
        self.ids: list[Id] = list(range(len(self._pool.skill_P)))
        self.theta = np.zeros((n, task.strategies + 1))
        """The parameters: a column for each strategy, and one for the doubt."""
        self._moments, self._updates = np.zeros((2, *self.theta.shape)), 0
        # prompts and strategies since the update
        self._rows: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []

    def rollout(self, ids_R: Iterable[Any]) -> FloatArray:
        """Samples a strategy for each row and returns its reward, 0 or 1, shape (R,)."""
        at_R = self._find(ids_R)
        prompt_P, group_R = np.unique(at_R, return_inverse=True)
        reach_PK = self._probabilities(self._pool.take(prompt_P)).cumsum(axis=1)
        toss_R2 = self._rng.random((len(at_R), 2))
        strategy_R = (toss_R2[:, :1] > reach_PK[group_R, :-1]).sum(axis=1)
        self._rows.append((at_R, strategy_R))
        return self.pay(at_R, strategy_R, toss_R2[:, 1])

    def pay(
        self, ids_R: NDArray[np.int64], strategy_R: NDArray[np.int64], toss_R: FloatArray
    ) -> FloatArray:
        """The reward of each rollout's strategy, shape (R,). `toss_R` is uniform on [0, 1). A
        subclass may grade."""
        skill_R = self._pool.skill_P[ids_R]
        coin_R = self._coin_S[skill_R]
        return np.where(
            np.isnan(coin_R), strategy_R == self._right_S[skill_R], toss_R < coin_R
        ).astype(np.float64)

    def learn(self, advantages_R: ArrayLike) -> None:
        """One update by the mean over all rollouts since the last update, in their order, shape
        (R,)."""
        gradient = self.gradient(advantages_R)
        self._rows.clear()
        gradient *= min(1.0, _CLIP / (float(np.linalg.norm(gradient)) + 1e-6))
        self._updates += 1
        self._moments[0] += (1 - _BETA1) * (gradient - self._moments[0])
        self._moments[1] += (1 - _BETA2) * (gradient**2 - self._moments[1])
        mean = self._moments[0] / (1 - _BETA1**self._updates)
        square = self._moments[1] / (1 - _BETA2**self._updates)
        self.theta += self.rate * _SPEED * mean / (np.sqrt(square) + _EPS)

    def gradient(self, advantages_R: ArrayLike) -> FloatArray:
        """The gradient that `learn` follows: of mean(advantage * log probability) since the last
        update."""
        rows = sum(len(at_R) for at_R, _ in self._rows)
        advantages = check_array("advantages_R", advantages_R, "one number per rollout")
        if advantages.shape != (rows,) or not rows or not np.isfinite(advantages).all():
            raise InputError(
                f"advantages_R has shape {advantages.shape} for {rows} rollouts since the last "
                "update: roll out first, and give a finite number for each.",
                argument="advantages_R",
            )
        at_R, strategy_R = (np.concatenate(column) for column in zip(*self._rows, strict=True))
        prompt_P, group_R = np.unique(at_R, return_inverse=True)
        asked = self._pool.take(prompt_P)
        # Rows of a prompt share its features: their errors are summed before the product.
        error_PK = np.zeros((len(prompt_P), self.task.strategies))
        np.add.at(error_PK, (group_R, strategy_R), advantages)
        error_PK -= np.bincount(group_R, weights=advantages)[:, None] * self._probabilities(asked)
        doubt = float((error_PK * self._doubt_SK[asked.skill_P]).sum())
        return np.column_stack([asked.features_PD.T @ error_PK, self._common * doubt]) / rows

    def success(self) -> float:
        """Mean probability of the right strategy over held-out prompts, traps left out; exact, in
        [0, 1]."""
        held = self._held_out
        right_P = np.arange(len(held.skill_P)), self._right_S[held.skill_P]
        return float(self._probabilities(held)[right_P].mean())

    def rates(self, ids_P: Iterable[Any]) -> FloatArray:
        """The true rates: each prompt's current probability of reward 1, shape (P,)."""
        at_P = self._find(ids_P, "ids_P")
        skill_P = self._pool.skill_P[at_P]
        right_P = self.probabilities(at_P)[np.arange(len(at_P)), self._right_S[skill_P]]
        return np.where(np.isnan(self._coin_S[skill_P]), right_P, self._coin_S[skill_P])

    def probabilities(self, ids_P: Iterable[Any]) -> FloatArray:
        """The probability of each strategy for these prompts now, shape (P, strategies)."""
        return self._probabilities(self._pool.take(self._find(ids_P, "ids_P")))

    def _probabilities(self, prompts: "_Prompts") -> FloatArray:
        doubt_PK = self._doubt_SK[prompts.skill_P] * (self._common @ self.theta[:, -1])
        logits_PK = prompts.start_PK + prompts.features_PD @ self.theta[:, :-1] + doubt_PK
        odds_PK = np.exp(logits_PK - logits_PK.max(axis=1, keepdims=True))
        return np.asarray(odds_PK / odds_PK.sum(axis=1, keepdims=True))

    def _find(self, ids_R: Iterable[Any], name: str = "ids_R") -> NDArray[np.int64]:
        ids = check_ids(ids_R, name)
        wrong = next((x for x in ids if isinstance(x, str) or not 0 <= x < len(self.ids)), None)
        if wrong is not None:
            raise InputError(
                f"{name}: {wrong!r} is not a prompt of this world: use world.ids.", argument=name
            )
        return np.array(ids, dtype=np.int64)


class _Prompts(NamedTuple):
    skill_P: NDArray[np.int64]
    features_PD: FloatArray
    start_PK: FloatArray

    def take(self, at_P: NDArray[np.int64]) -> "_Prompts":
        return _Prompts(self.skill_P[at_P], self.features_PD[at_P], self.start_PK[at_P])

"""One pass over a log that computes the use of its rollouts, in memory proportional to its prompts and steps."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.group_kinds import KINDS, WITHOUT_GRADIENT, group_kinds
from budgetalloc.beliefs.ids import Id, check_ids
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import EQUAL, check_range
from budgetalloc.errors import InputError
from budgetalloc.logs.chunk import Chunk, Ints
from budgetalloc.report.forecast import NEAR, Forecast
from budgetalloc.report.success import success_of
from budgetalloc.report.waste import Waste

__all__ = ["measure"]


def measure(chunks: Chunk | Iterable[Chunk], *, reward_range: tuple[float, float] | None = None) -> Waste:
    """Reads a log once and computes the use of its rollouts.

    Args:
        chunks: A `Ledger`, or parts of a log that hold whole steps, in ascending order.
        reward_range: The rewards of failure and success; rewards in between are graded. Default: the range of the log,
            else (0, 1). A log with a success column needs none.

    Raises:
        InputError: a reward outside the range, a step in two chunks, or no reward at all.

    >>> log = Chunk(
    ...     step_R=np.repeat([0, 1], 8), ids_R=(["a"] * 4 + ["b"] * 4) * 2,
    ...     rewards_R=np.array([0, 0, 0, 0] + [0, 1, 1, 1] + [0, 0, 0, 0] + [1] * 4), lengths_R=np.full(16, 10),
    ...     predicted_R=np.full(16, 0.5), counts_R=np.full(16, 4))
    >>> waste = measure([log])
    >>> waste.rollouts, waste.wasted, waste.wasted_tokens
    (16, 12, 120)
    >>> waste.shares()
    {'mixed': 0.25, 'all_fail': 0.5, 'all_pass': 0.25, 'tied': 0.0, 'single': 0.0}
    >>> [waste.ids_P[at] for at in waste.never()]
    ['a']
    >>> round(waste.forecast.brier, 3)  # the log has predictions, 1/2 for every rollout
    0.25
    """
    run = _Run(None if reward_range is None else check_range(reward_range))
    for chunk in [chunks] if isinstance(chunks, Chunk) else chunks:
        run.add(chunk)
    return run.result()


class _Run:
    """The sums over the log so far."""

    def __init__(self, reward_range: tuple[float, float] | None) -> None:
        self.given = self.range = reward_range
        self.steps: list[int] = []
        self.trainer_steps: set[int] = set()
        self.by_step: list[dict[str, NDArray[Any]]] = []  # columns of `Waste`, for the steps of each chunk
        self.place: dict[Id, int] = {}
        self.by_prompt: dict[str, FloatArray] = {}  # columns of `Waste`
        self.belief = BetaEstimator(discount=0.9)  # `forecast.BELIEF`
        self.forecast = Forecast.of(np.zeros(0), np.zeros(0), 0)
        self.graded = False
        self.unscored = self.unmeasured = self.broken = self.as_predicted = 0

    def add(self, log: Chunk) -> None:
        self.broken += log.broken
        rewards_R = np.asarray(log.rewards_R, dtype=np.float64)
        success_R = success_of(log, self.given)
        scored_R = ~np.isnan(rewards_R) & ~np.isnan(success_R)
        self.unscored += int((~scored_R).sum())
        steps_S = np.unique(log.step_R)
        if not len(steps_S):
            return
        if self.steps and steps_S[0] <= self.steps[-1]:
            raise InputError(
                f"chunks: step {steps_S[0]} comes after step {self.steps[-1]}. Give whole steps in ascending order."
            )
        self.range = self.given or log.reward_range or self.range
        self.steps += steps_S.tolist()
        self.trainer_steps.update(np.unique(log.trainer_step_R).tolist())
        ids = check_ids(log.ids_R, "ids_R")
        scored = [name for name, has_reward in zip(ids, scored_R.tolist(), strict=True) if has_reward]
        prompt_R = np.fromiter((self.place.setdefault(x, len(self.place)) for x in scored), np.int64, len(scored))
        step_R = np.searchsorted(steps_S, log.step_R[scored_R])
        order = np.lexsort((prompt_R, step_R))
        rows_R = np.flatnonzero(scored_R)[order]
        steps, step_R, prompt_R = len(steps_S), step_R[order], prompt_R[order]
        rewards_R, success_R, logged_R = rewards_R[rows_R], success_R[rows_R], log.predicted_R[rows_R]
        length_R, cost_R = log.lengths_R[rows_R], log.costs_R[rows_R]
        # Sums by group, then by step and by prompt, of rows sorted by step and prompt. S: the steps of the chunk.
        opens_R = np.ones(len(step_R), dtype=bool)
        opens_R[1:] = (step_R[1:] != step_R[:-1]) | (prompt_R[1:] != prompt_R[:-1])
        rows_G = np.flatnonzero(opens_R)
        step_G, prompt_G, size_G = step_R[rows_G], prompt_R[rows_G], np.diff(np.append(rows_G, len(step_R)))
        tokens_G = np.add.reduceat(np.maximum(length_R, 0), rows_G)
        success_G = np.add.reduceat(success_R, rows_G)
        kind_G, _ = group_kinds(rewards_R, success_R, np.cumsum(opens_R) - 1, len(rows_G))
        known_R = (logged_R >= 0) & (logged_R <= 1)  # False for NaN
        mean_G = self._predict(step_G, step_R, prompt_G, prompt_R, success_R)
        predicted_R = np.where(known_R, logged_R, np.repeat(mean_G, size_G))
        error_R = np.abs(success_R - predicted_R)
        self.forecast += Forecast.of(success_R, predicted_R, int(known_R.sum()))
        self.as_predicted += int((error_R[rows_G[size_G == 1]] <= NEAR + 1e-9).sum())
        self.graded |= bool(((success_R > EQUAL) & (success_R < 1 - EQUAL)).any())
        self.unmeasured += int((length_R < 0).sum())

        by_kind: dict[str, FloatArray | None] = {"groups_SK": None, "rollouts_SK": size_G, "tokens_SK": tokens_G}
        sums = {"reward_S": np.add.reduceat(rewards_R, rows_G), "success_S": success_G}
        sums["surprise_S"] = np.add.reduceat(error_R, rows_G)
        sums["cost_S"] = np.add.reduceat(cost_R, rows_G)
        cell_G, cells = step_G * len(KINDS) + kind_G, steps * len(KINDS)
        self.by_step.append(
            {name: np.bincount(cell_G, x_G, cells).reshape(steps, -1) for name, x_G in by_kind.items()}
            | {name: np.bincount(step_G, x_G, steps) for name, x_G in sums.items()}
        )
        wasted_G = np.isin(kind_G, [KINDS.index(kind) for kind in WITHOUT_GRADIENT])
        by_prompt = {"visits_P": None, "rollouts_P": size_G, "successes_P": success_G}
        by_prompt |= {"wasted_P": size_G * wasted_G, "wasted_tokens_P": tokens_G * wasted_G}
        for name, x_G in by_prompt.items():
            before_P = self.by_prompt.get(name, np.zeros(0))
            self.by_prompt[name] = np.bincount(prompt_G, x_G, len(self.place)).astype(np.float64)
            self.by_prompt[name][: len(before_P)] += before_P

    def _predict(self, step_G: Ints, step_R: Ints, prompt_G: Ints, prompt_R: Ints, success_R: FloatArray) -> FloatArray:
        """The mean success of each group as the report's own belief predicted it before the step."""
        mean_G = np.zeros(len(step_G))
        for step in np.unique(step_G):
            group, row = (slice(*np.searchsorted(x, [step, step + 1])) for x in (step_G, step_R))
            mean_G[group] = self.belief.belief(prompt_G[group].tolist()).mean
            self.belief.observe(prompt_R[row].tolist(), success_R[row])
            self.belief.tick()
        return mean_G

    def result(self) -> Waste:
        if not self.place:
            raise InputError(
                f"The log holds no rollout with a reward ({self.unscored} rollouts have none; rows that could not "
                "be read do not count): there is nothing to report. Is it the right file and reward column?"
            )
        columns = {name: np.concatenate([part[name] for part in self.by_step]) for name in self.by_step[0]}
        columns |= self.by_prompt
        floats = ("reward_S", "success_S", "surprise_S", "cost_S", "successes_P")
        return Waste(
            step_S=np.array(self.steps, dtype=np.int64),
            ids_P=list(self.place),
            **{name: x if name in floats else np.rint(x).astype(np.int64) for name, x in columns.items()},
            forecast=self.forecast,
            as_predicted=self.as_predicted,
            reward_range=self.range or (0.0, 1.0),
            graded=self.graded,
            trainer_steps=len(self.trainer_steps),
            unscored=self.unscored,
            unmeasured=self.unmeasured,
            broken=self.broken,
        )

"""One pass over a log that computes the use of its rollouts, in memory proportional to its prompts and steps."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.group_kinds import KINDS, WITHOUT_GRADIENT, group_kinds
from budgetalloc.beliefs.ids import Id, check_ids
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import EQUAL, check_range
from budgetalloc.errors import InputError
from budgetalloc.logs.chunk import Chunk
from budgetalloc.report.forecast import BINS, Forecast, bin_of, expected, report_estimator
from budgetalloc.report.success import success_of
from budgetalloc.report.waste import Waste

Ints = NDArray[np.int64]


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


class _Sums:
    """Named columns of sums that grow as places are added to."""

    def __init__(self, *names: str) -> None:
        self._columns = dict.fromkeys(names, np.zeros(0))

    def add(self, at_G: Ints, **values_G: ArrayLike) -> None:
        """Adds one value at each of these places to each of the named columns."""
        if not len(at_G):
            return
        low, high = int(at_G.min()), int(at_G.max()) + 1
        for name, values in values_G.items():
            column = self._columns[name]
            if high > len(column):
                column = self._columns[name] = np.append(column, np.zeros(max(high - len(column), len(column))))
            column[low:high] += np.bincount(at_G - low, weights=np.asarray(values, float), minlength=high - low)

    def floats(self, name: str, size: int) -> FloatArray:
        column = self._columns[name][:size]
        return np.append(column, np.zeros(size - len(column)))

    def ints(self, name: str, size: int) -> Ints:
        return np.rint(self.floats(name, size)).astype(np.int64)


class _Run:
    """The sums over the log so far."""

    def __init__(self, reward_range: tuple[float, float] | None) -> None:
        self.given = self.range = reward_range
        self.place: dict[Id, int] = {}
        self.prompts = _Sums("visits", "rollouts", "wasted", "wasted_tokens", "successes")
        self.steps: list[int] = []
        self.trainer_steps: set[int] = set()
        self.by_step = _Sums("reward", "success", "surprise")
        self.by_kind = _Sums("groups", "rollouts", "tokens")  # of each step, one place a kind
        self.belief = report_estimator()
        self.predictions = _Sums("rollouts", "predicted", "success")  # of the success of rollouts
        self.forecast = dict.fromkeys(("squared", "surprises", "squares", "logged"), 0.0)
        self.seen = (np.inf, -np.inf)
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
        rewards_R = rewards_R[scored_R]
        self.seen = float(rewards_R.min(initial=self.seen[0])), float(rewards_R.max(initial=self.seen[1]))
        self.trainer_steps.update(np.unique(log.trainer_step_R).tolist())
        ids = check_ids(log.ids_R, "ids_R")
        scored = [name for name, has_reward in zip(ids, scored_R.tolist(), strict=True) if has_reward]
        prompt_R = np.fromiter((self.place.setdefault(x, len(self.place)) for x in scored), np.int64, len(scored))
        at_R = len(self.steps) + np.searchsorted(steps_S, log.step_R[scored_R])
        self.steps += steps_S.tolist()
        order = np.lexsort((prompt_R, at_R))
        rows_R = np.flatnonzero(scored_R)[order]
        self._groups(
            at_R[order],
            prompt_R[order],
            rewards_R[order],
            success_R[rows_R],
            log.predicted_R[rows_R],
            log.lengths_R[rows_R],
        )

    def _groups(
        self,
        at_R: Ints,
        prompt_R: Ints,
        rewards_R: FloatArray,
        success_R: FloatArray,
        logged_R: FloatArray,
        length_R: Ints,
    ) -> None:
        """Sums by group, then by step and by prompt, of rows sorted by step and prompt."""
        opens_R = np.ones(len(at_R), dtype=bool)
        opens_R[1:] = (at_R[1:] != at_R[:-1]) | (prompt_R[1:] != prompt_R[:-1])
        rows_G = np.flatnonzero(opens_R)
        if not len(rows_G):
            return
        self.graded |= bool(((success_R > EQUAL) & (success_R < 1 - EQUAL)).any())
        at_G, prompt_G, n_G = at_R[rows_G], prompt_R[rows_G], np.diff(np.append(rows_G, len(at_R)))
        self.unmeasured += int((length_R < 0).sum())
        tokens_G = np.add.reduceat(np.maximum(length_R, 0), rows_G)
        kind_G, _ = group_kinds(rewards_R, success_R, np.cumsum(opens_R) - 1, len(rows_G))
        mean_G = self._predict(at_G, at_R, prompt_G, prompt_R, success_R)
        known_R = (logged_R >= 0) & (logged_R <= 1)  # False for NaN
        predicted_R = np.where(known_R, logged_R, np.repeat(mean_G, n_G))
        self._predicted(success_R, predicted_R, int(known_R.sum()))
        self.as_predicted += int(expected(success_R, predicted_R)[rows_G[n_G == 1]].sum())
        equal_G = np.isin(kind_G, [KINDS.index(kind) for kind in WITHOUT_GRADIENT])
        ones_G, success_G = np.ones(len(n_G)), np.add.reduceat(success_R, rows_G)
        self.by_kind.add(at_G * len(KINDS) + kind_G, groups=ones_G, rollouts=n_G, tokens=tokens_G)
        self.by_step.add(
            at_G,
            reward=np.add.reduceat(rewards_R, rows_G),
            success=success_G,
            surprise=np.add.reduceat(np.abs(success_R - predicted_R), rows_G),
        )
        self.prompts.add(
            prompt_G,
            visits=ones_G,
            rollouts=n_G,
            wasted=n_G * equal_G,
            wasted_tokens=tokens_G * equal_G,
            successes=success_G,
        )

    def _predict(self, at_G: Ints, at_R: Ints, prompt_G: Ints, prompt_R: Ints, success_R: FloatArray) -> FloatArray:
        """The mean success of each group as the report's own belief predicted it before the step."""
        mean_G = np.zeros(len(at_G))
        for step in np.unique(at_G):
            group, row = (slice(*np.searchsorted(x, [step, step + 1])) for x in (at_G, at_R))
            mean_G[group] = self.belief.belief(prompt_G[group].tolist()).mean
            self.belief.observe(prompt_R[row].tolist(), success_R[row])
            self.belief.tick()
        return mean_G

    def _predicted(self, success_R: FloatArray, predicted_R: FloatArray, logged: int) -> None:
        bins, error_R = bin_of(predicted_R), success_R - predicted_R
        self.predictions.add(bins, rollouts=np.ones(len(bins)), predicted=predicted_R, success=success_R)
        sums = {"squared": (error_R**2).sum(), "surprises": np.abs(error_R).sum(), "squares": (success_R**2).sum()}
        for name, value in (sums | {"logged": logged}).items():
            self.forecast[name] += float(value)

    def result(self) -> Waste:
        if not self.place:
            raise InputError(
                f"The log holds no rollout with a reward ({self.unscored} rollouts have none; rows that could not "
                "be read do not count): there is nothing to report. Is it the right file and reward column?"
            )
        steps, prompts, kinds = len(self.steps), len(self.place), len(KINDS)
        by_kind = {name: self.by_kind.ints(name, steps * kinds) for name in ("groups", "rollouts", "tokens")}
        forecast = Forecast(
            rollouts_B=self.predictions.ints("rollouts", BINS),
            predicted_B=self.predictions.floats("predicted", BINS),
            success_B=self.predictions.floats("success", BINS),
            squared=self.forecast["squared"],
            surprises=self.forecast["surprises"],
            squares=self.forecast["squares"],
            logged=int(self.forecast["logged"]),
        )
        return Waste(
            step_S=np.array(self.steps, dtype=np.int64),
            groups_SK=by_kind["groups"].reshape(steps, kinds),
            rollouts_SK=by_kind["rollouts"].reshape(steps, kinds),
            tokens_SK=by_kind["tokens"].reshape(steps, kinds),
            reward_S=self.by_step.floats("reward", steps),
            success_S=self.by_step.floats("success", steps),
            surprise_S=self.by_step.floats("surprise", steps),
            ids_P=list(self.place),
            visits_P=self.prompts.ints("visits", prompts),
            rollouts_P=self.prompts.ints("rollouts", prompts),
            wasted_P=self.prompts.ints("wasted", prompts),
            wasted_tokens_P=self.prompts.ints("wasted_tokens", prompts),
            successes_P=self.prompts.floats("successes", prompts),
            forecast=forecast,
            as_predicted=self.as_predicted,
            reward_range=self.range or (0.0, 1.0),
            reward_seen=self.seen,
            graded=self.graded,
            trainer_steps=len(self.trainer_steps),
            unscored=self.unscored,
            unmeasured=self.unmeasured,
            broken=self.broken,
        )

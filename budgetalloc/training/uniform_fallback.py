"""Uniform groups in place of the policy's: in small pools, and while prompts differ and their
history does not say how."""

import logging
from dataclasses import replace
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import factorize
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import some_unequal
from budgetalloc.beliefs.state import Stateful
from budgetalloc.policies import Step
from budgetalloc.policies.adaptive import uniform_groups
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.parts import Host, Part, Plan

logger = logging.getLogger(__name__)
_KEPT = 0.9  # share of the sums kept at a step, which average about ten steps
_WARNED, _FALLEN, _HEALED = 10, 30, 20  # steps in a row
_LEAST = 0.03  # variance between the rates of prompts; below it there is little to know
_ERROR = 0.75  # three standard errors of that variance, times the root of the prompts
_TOLD = 0.2  # correlation of belief and rate; groups of 2 of prompts that differ so much have 0.4
_PAIRS = 2  # rollouts of a step for each prompt of a small pool

REASON = (
    "After %.1f earlier rollouts a prompt, its history does not say which prompts of a step "
    "succeed: the beliefs have a correlation of %.2f with the rates in the step, whose standard "
    "deviation is %.2f (%d steps in a row). Possible reasons: prompts share a name (prompt_id=), "
    "the names change between steps, or the beliefs of another run were loaded."
)
CHANGED = (
    "The rewards of all prompts are %s what was believed, ten steps in a row. The baseline "
    "follows at once, and the beliefs within some steps. This is usual under a schedule of "
    "weights, of bonuses or of strictness; otherwise look at the rewards."
)
FEW = (
    "The pool has %d prompts for %d rollouts a step: there is little to choose, and in one of two "
    "pools as small single rollouts ended below plain GRPO. Groups are uniform, with the group's "
    "mean as baseline. fallback=False lets %s decide."
)
CONSTANT = (
    "In each of the last %d steps all rewards were equal (%g in the last), so nothing was learned. "
    "Look at some completions: does the reward function find their answers, or are they cut off? "
    "If it is right, the prompts are too hard or too easy."
)


class UniformFallback(Stateful, Part):
    """Uniform groups in small pools, and while beliefs say nothing about prompts that differ.

    The rollouts of a prompt in one step show how much prompts differ: the mean product of two of
    them, minus that of two prompts, is the variance of their rates. If prompts differ, beliefs
    about those that return must be correlated with their rollouts. Where that fails for ten steps
    in a row, a warning is logged once. After 30 steps in a row, groups become uniform until it has
    held for 20 steps. Meanwhile the beliefs go on learning.

    Groups are uniform also while a step has two rollouts or more for each prompt of the whole pool:
    then there is little to choose, and single rollouts ended below groups. The prompts are those of
    the loader's batch, as without a policy.

    Where prompts resemble each other, beliefs cannot be wrong about the differences, and nothing is
    logged. Nor is it where prompts have single rollouts, which do not show how much prompts differ.

    The sign and the size of advantages need no check: `policies.advantages` sets both at
    every step.

    Args:
        fallback: Whether to fall back; otherwise there are only metrics and warnings.
    """

    saved = ("uniform", "_sums", "_worse", "_within")

    def __init__(self, fallback: bool = True) -> None:
        self.fallback = fallback
        self.uniform = False
        self.quiet = self.every = True
        self._chooses, self._policy = False, ""
        self._sums = (0.0,) * 6  # of `agreement`
        self._worse = 0  # steps in a row
        self._within = 0  # steps in a row in which the beliefs told prompts apart
        self._equal = 0  # steps in a row with equal rewards, of which none is trained on
        self._moved = 0  # steps in a row with a recalibrated baseline and other rewards
        self._warned: set[str] = set()

    def attach(self, session: Any, host: Host) -> None:
        self.quiet, self.every = session.quiet, session.options.metrics == "all"
        self._policy = str(session.policy)
        self._chooses = self.fallback and session.options.bounds.candidates == "all"
        if self._chooses and host.sizes and host.prompts is not None and host.prompts.indexable:
            # then the step's prompts are those of the loader's batch, as without a policy
            self.from_loader = self._is_small(len(host.prompts.pool), max(host.sizes))

    def _is_small(self, prompts: int, rollouts: int) -> bool:
        """Whether groups are uniform because a step has two rollouts for each prompt."""
        return self._chooses and _PAIRS * prompts <= rollouts

    def plan(self, plan: Plan) -> Plan:
        """The plan, with uniform groups if the pool is small: of the prompts of the loader's batch
        if it is known, else of prompts drawn alike."""
        small = self._is_small(len(plan.ids_P), plan.rollouts)
        if not small or plan.fixed or plan.group < 2:
            return plan
        self._say(FEW, len(plan.ids_P), plan.rollouts, self._policy, once="few")
        ids_P = factorize(plan.own_ids)[0] or plan.ids_P
        return replace(plan, ids_P=ids_P, decide=uniform_groups(plan.group))

    def learn(self, rollouts: Rollouts | None, step: Step) -> dict[str, float]:
        """Checks a finished step.

        Returns:
            The metrics `baseline/brier` and `baseline/brier_pool_mean`, the Brier scores of the
                posterior baseline and of one rate for all prompts; `advantage/rms_grpo`, the root
                mean square that GRPO is expected to have on these prompts;
                `baseline/recalibrated`, the share of rollouts whose baseline follows a change of
                all rewards; and `fallback`, 1 if the step had uniform groups.
        """
        if rollouts is None:
            return {}
        metrics = {"fallback": float(self.uniform)}
        known_R = ~np.isnan(rollouts.success_R)
        if not known_R.any():
            return metrics
        own = rollouts.by_beliefs
        success_R, count = rollouts.success_R[known_R], float(known_R.sum())
        brier = float(np.sum((own.mean_R[known_R] - success_R) ** 2))
        pool = float(np.sum((rollouts.earlier.mean_success - success_R) ** 2))
        self._compare(agreement(rollouts))
        recalibrated = float(own.calibration.changed_R.mean())
        varies = some_unequal(rollouts.rewards_R)
        self._equal = 0 if varies else self._equal + 1
        self._moved = self._moved + 1 if recalibrated > 0.5 and varies else 0
        if self._equal == _WARNED:
            self._say(CONSTANT, self._equal, rollouts.rewards_R[known_R][0], once="constant")
        if self._moved == _WARNED:
            self._say(
                CHANGED, "below" if own.calibration.lean_R.mean() < 0 else "above", once="changed"
            )
        if not self.every:
            return metrics
        return metrics | {
            "baseline/recalibrated": recalibrated,
            "baseline/brier": brier / count,
            "baseline/brier_pool_mean": pool / count,
            "advantage/rms_grpo": float(np.sqrt(own.grpo_R[known_R].mean())),
        }

    def _compare(self, step_S: FloatArray) -> None:
        self._sums = tuple((_KEPT * np.array(self._sums) + step_S).tolist())
        prompts, returning = max(self._sums[0], 1.0), max(self._sums[2], 1.0)
        between = self._sums[1] / prompts
        shared, believed, rollouts = [total / returning for total in self._sums[3:]]
        told = shared / np.sqrt(max(between * believed, 1e-12))
        worse = between > max(_LEAST, _ERROR / np.sqrt(prompts)) and told < _TOLD
        self._worse, self._within = (self._worse + 1, 0) if worse else (0, self._within + 1)
        if self._worse >= _WARNED:
            self._say(REASON, rollouts, told, np.sqrt(between), self._worse, once="worse")
        if not self.fallback:
            return
        if self._worse >= _FALLEN and not self.uniform:
            self.uniform = True
            self._say(
                "From now on groups are uniform, with the group's mean as baseline. The policy "
                "goes on learning, and decides again when its beliefs have told prompts apart for "
                "%d steps. fallback=False keeps it deciding.",
                _HEALED,
            )
        elif self.uniform and self._within >= _HEALED:
            self.uniform = False
            self._say(
                "The beliefs have told prompts apart for %d steps: the policy decides again.",
                _HEALED,
            )

    def _say(self, text: str, *values: object, once: str = "") -> None:
        if not self.quiet and once not in self._warned:
            logger.warning(text, *values)
        if once:
            self._warned.add(once)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state:  # without one, it begins anew
            Stateful.load_state_dict(self, state)
            self.uniform = self.uniform and self.fallback


def agreement(rollouts: Rollouts) -> FloatArray:
    """What a step shows about its beliefs: six sums over its prompts that return.

    Over those with two rollouts or more in their first round: their number minus 1, and that times
    the variance of their rates. Over all, those with one rollout too: their number minus 1, and
    that times the covariance of belief and rate, the variance of the beliefs, and the number of
    earlier rollouts. A policy that retries failures gives more rollouts to prompts whose beliefs
    are alike, for they have all just failed; beside the others, they have to differ.

    Each is unbiased, as later rounds, which follow from outcomes, are left out.
    """
    round_G = rollouts.round_R[rollouts.first_G]
    counted_R = (rollouts.round_R == round_G[rollouts.group_R]) & ~np.isnan(rollouts.learned_R)
    s_R = np.where(counted_R, rollouts.learned_R, 0.0)
    n_G, sum_G, square_G = [np.bincount(rollouts.group_R, x_R) for x_R in (counted_R, s_R, s_R**2)]
    belief_G, prior_G = [x.take(rollouts.first_G) for x in (rollouts.belief_R, rollouts.prior)]
    earlier_G = belief_G.mass - prior_G.mass
    returning_G, sums = (n_G >= 1) & (earlier_G > 1e-6), np.zeros(6)
    several = np.flatnonzero(returning_G & (n_G >= 2))
    if (prompts := len(several)) >= 2:
        n_K, sum_K = n_G[several], sum_G[several]
        alike = np.mean((sum_K**2 - square_G[several]) / (n_K * (n_K - 1)))
        rate_K = sum_K / n_K
        apart = (rate_K.sum() ** 2 - np.sum(rate_K**2)) / (prompts * (prompts - 1))
        sums[:2] = prompts - 1, (prompts - 1) * (alike - apart)
    rows = np.flatnonzero(returning_G)
    if (prompts := len(rows)) >= 2:
        covariance_22 = np.cov(belief_G.mean[rows], sum_G[rows] / n_G[rows])
        means = 1.0, covariance_22[0, 1], covariance_22[0, 0], earlier_G[rows].mean()
        sums[2:] = (prompts - 1) * np.array(means)
    return sums

"""A check of the beliefs at every step. While they say less than one rate for all prompts would,
groups are uniform."""

import logging
from typing import Any

import numpy as np

from budgetalloc.beliefs.rewards import some_unequal
from budgetalloc.beliefs.state import Stateful
from budgetalloc.policies import Step
from budgetalloc.policies.batch_advantages import by_beliefs
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.parts import Host, Part

logger = logging.getLogger(__name__)
_KEPT = 0.9  # share of the sums kept at a step, which average about ten steps
_WARNED, _FALLEN, _HEALED = 10, 30, 20  # steps in a row
# Brier score relative to one rate for all prompts: allowed factor and difference
_WORSE, _MATTERS = 1.1, 0.01
_MOVED = 3  # steps in a row
_SUMS = ("brier", "pool", "rollouts")

REASON = (
    "The beliefs have predicted success worse than one rate for all prompts. Possible reasons: the "
    "reward changes with the step, prompts share a name (prompt_id=), or the beliefs of another "
    "run were loaded."
)
CHANGED = (
    "The rewards of all prompts are %s what was believed, three steps in a row. The baseline "
    "follows at once, and the beliefs within some steps. This is usual in the first steps, and "
    "under a schedule of weights, of bonuses or of strictness; otherwise look at the rewards."
)
CONSTANT = (
    "In each of the last %d steps all rewards were equal (%g in the last), so nothing was learned. "
    "Look at some completions: does the reward function find their answers, or are they cut off? "
    "If it is right, the prompts are too hard or too easy."
)


class Rails(Part, Stateful):
    """Falls back to uniform groups while the beliefs are worse than one rate for all prompts.

    The Brier score of the posterior baseline, on average over about ten steps, is compared with
    that of one rate for all prompts. A warning is logged once if it is worse for ten steps in a
    row. After 30 steps in a row, groups become uniform until it has not been worse for 20 steps.
    Meanwhile the beliefs go on learning.

    The sign and the size of advantages need no check: `policies.batch_advantages` sets both at
    every step.

    Args:
        fallback: Whether to fall back; otherwise there are only metrics and warnings.
    """

    saved = ("uniform", "_sums", "_worse", "_within")

    def __init__(self, fallback: bool = True) -> None:
        self.fallback = fallback
        self.uniform = False
        self.quiet = self.every = True
        self._sums = dict.fromkeys(_SUMS, 0.0)
        self._worse = 0  # steps in a row
        self._within = 0  # steps in a row in which the beliefs were not worse
        self._equal = 0  # steps in a row with equal rewards, of which none is trained on
        self._moved = 0  # steps in a row with a recalibrated baseline and other rewards
        self._warned: set[str] = set()

    def attach(self, session: Any, host: Host) -> None:
        self.quiet, self.every = session.quiet, session.options.metrics == "all"

    def learn(self, rollouts: Rollouts | None, step: Step) -> dict[str, float]:
        """Checks a finished step.

        Returns:
            The metrics `baseline/brier` and `baseline/brier_pool_mean`, the Brier scores of the
                posterior baseline and
            of one rate for all prompts; `advantage/rms_grpo`, the root mean square that GRPO is
                expected to have on
            these prompts in groups of 8; `baseline/recalibrated`, the share of rollouts whose
                baseline follows a change
            of all rewards; and `fallback`, 1 if the step had uniform groups.
        """
        if rollouts is None:
            return {}
        metrics = {"fallback": float(self.uniform)}
        known_R = ~np.isnan(rollouts.success_R)
        if not known_R.any():
            return metrics
        own = by_beliefs(rollouts)
        success_R, count = rollouts.success_R[known_R], float(known_R.sum())
        brier = float(np.sum((own.mean_R[known_R] - success_R) ** 2))
        pool = float(np.sum((rollouts.earlier.mean_success - success_R) ** 2))
        self._compare({"brier": brier, "pool": pool, "rollouts": count})
        recalibrated = float(own.calibration.changed_R.mean())
        varies = some_unequal(rollouts.rewards_R)
        self._equal = 0 if varies else self._equal + 1
        self._moved = self._moved + 1 if recalibrated > 0.5 and varies else 0
        if self._equal == _WARNED:
            self._say(CONSTANT, self._equal, rollouts.rewards_R[known_R][0], once="constant")
        if self._moved == _MOVED:
            self._say(
                CHANGED, "below" if own.calibration.lean_R.mean() < 0 else "above", once="changed"
            )
        if not self.every:
            return metrics
        return metrics | {
            "baseline/recalibrated": recalibrated,
            "baseline/brier": brier / count,
            "baseline/brier_pool_mean": pool / count,
            "advantage/rms_grpo": float(np.sqrt(own.compared.grpo_R[known_R].mean())),
        }

    def _compare(self, step: dict[str, float]) -> None:
        self._sums = {name: _KEPT * self._sums[name] + x for name, x in step.items()}
        brier, pool, rollouts = self._sums.values()
        worse = brier > _WORSE * pool + _MATTERS * rollouts
        self._worse, self._within = (self._worse + 1, 0) if worse else (0, self._within + 1)
        if self._worse >= _WARNED:
            self._say("%s (%d steps in a row.)", REASON, self._worse, once="worse")
        if not self.fallback:
            return
        if self._worse >= _FALLEN and not self.uniform:
            self.uniform = True
            self._say(
                "From now on groups are uniform, with the group's mean as baseline. The policy "
                "goes on learning, and decides again when its beliefs have not been worse for %d "
                "steps. fallback=False keeps it deciding.",
                _HEALED,
            )
        elif self.uniform and self._within >= _HEALED:
            self.uniform = False
            self._say(
                "The beliefs have not been worse for %d steps: the policy decides again.", _HEALED
            )

    def _say(self, text: str, *values: object, once: str = "") -> None:
        if not self.quiet and once not in self._warned:
            logger.warning(text, *values)
        if once:
            self._warned.add(once)

    def state_dict(self) -> dict[str, Any]:
        """The state, under the key "rails"."""
        return {"rails": Stateful.state_dict(self)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if "rails" in state:
            Stateful.load_state_dict(self, state["rails"])
            self.uniform = self.uniform and self.fallback

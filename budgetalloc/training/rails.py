"""Rails: checks of beliefs and advantages at every step. While they fail, groups are uniform."""

import logging
from typing import Any

import numpy as np

from budgetalloc.errors import StateError
from budgetalloc.policies.batch_advantages import Rollouts, batch_advantages

__all__ = ["REASONS", "Rails"]

logger = logging.getLogger(__name__)
_KEPT = 0.9  # share of the sums kept at a step, which average about ten steps
_WARNED, _FALLEN, _HEALED = 10, 30, 20  # steps in a row
_WORSE, _MATTERS = 1.1, 0.01  # Brier score relative to one rate for all prompts: allowed factor and difference
_BELOW, _ABOVE = -0.3, 0.7  # mean advantages; rewards exceed beliefs while the model learns quickly
_SIZE = 3.0  # factor between the root mean square of the advantages and GRPO's
_LITTLE = 0.3  # below this size GRPO's own gradient is small, and smaller advantages are allowed
_SUMS = ("brier", "pool", "lean", "square", "grpo", "rollouts")

REASONS = {
    "beliefs": "The beliefs have predicted success worse than one rate for all prompts. Possible reasons: the reward "
    "changes with the step, prompts share a name (prompt_id=), or the beliefs of another run were loaded.",
    "lean": "The mean advantage has been outside -0.3 to 0.7 of their root mean square: the baseline lies on one side "
    "of the rewards, and the gradient moves the probability of every sampled completion the same way. Possible "
    "reasons: the beliefs are about another success than the reward (pass success=), or the range of rewards is wrong.",
    "size": "The root mean square of the advantages has been more than three times, or less than a third, of what GRPO "
    "is expected to have on these prompts. Possible reasons: rewards whose size changes during the run.",
}


class Rails:
    """Falls back to uniform groups while beliefs or advantages are out of bounds.

    Three averages over about ten steps are checked: the Brier score of the posterior baseline relative to one rate for
    all prompts, the mean of its advantages, and their root mean square relative to GRPO's. A warning is logged once if
    one of them is out of bounds for ten steps in a row. After 30 steps in a row, groups become uniform until all three
    are within bounds for 20 steps. Meanwhile the beliefs go on learning, and the checks use the advantages that the
    policy would have given.

    Args:
        fallback: Whether to fall back; otherwise there are only metrics and warnings.
        quiet: Whether to suppress log messages, as in all processes but one.
    """

    def __init__(self, fallback: bool = True, quiet: bool = False) -> None:
        self.fallback, self.quiet = fallback, quiet
        self.fallen = False
        """Whether the next step has uniform groups."""
        self._sums = dict.fromkeys(_SUMS, 0.0)
        self._out = dict.fromkeys(REASONS, 0)  # steps in a row out of bounds
        self._within = 0  # steps in a row with all checks within bounds
        self._warned: set[str] = set()

    def look(self, rollouts: Rollouts) -> dict[str, float]:
        """Checks a finished step.

        Returns:
            The metrics `baseline/brier` and `baseline/brier_pool_mean`, the Brier scores of the posterior baseline and
            of one rate for all prompts; `advantage/rms_grpo`, the root mean square that GRPO is expected to have on
            these prompts in groups of 8; and `fallback`, 1 if the step had uniform groups.
        """
        rollouts = rollouts.without_rule
        advantages_R, sums = batch_advantages(rollouts, "posterior", "group").values_R, rollouts.sums()
        known_R = ~np.isnan(rollouts.success_R)
        success_R, pool_rate = rollouts.success_R[known_R], rollouts.earlier.mean_success
        brier, pool = (float(np.sum((x - success_R) ** 2)) for x in (rollouts.mean_R[known_R], pool_rate))
        square, count = float(np.sum(advantages_R**2)), float(known_R.sum())
        lean = float(advantages_R.sum()) * (count / square) ** 0.5 if square > 0 else 0.0  # in units of its size
        metrics = {"fallback": float(self.fallen)}
        if known_R.any():
            self._learn((brier, pool, lean, square, sums.grpo, count))
            metrics |= {"baseline/brier": brier / count, "baseline/brier_pool_mean": pool / count}
            metrics["advantage/rms_grpo"] = float(np.sqrt(sums.grpo / count))
        return metrics

    def _learn(self, step_sums: tuple[float, ...]) -> None:
        self._sums = {name: _KEPT * self._sums[name] + x for name, x in zip(_SUMS, step_sums, strict=True)}
        out = self._out_of_bounds()
        self._out = {name: self._out[name] + 1 if name in out else 0 for name in REASONS}
        self._within = 0 if out else self._within + 1
        for name in out:
            if self._out[name] >= _WARNED and name not in self._warned:
                self._warned.add(name)
                self._say("%s (%d steps in a row.)", REASONS[name], self._out[name])
        if self.fallback:
            self._decide(max(self._out.values()) >= _FALLEN)

    def _out_of_bounds(self) -> list[str]:
        x = self._sums
        size, grpo = ((x[name] / x["rollouts"]) ** 0.5 for name in ("square", "grpo"))
        found = {
            "beliefs": x["brier"] > _WORSE * x["pool"] + _MATTERS * x["rollouts"],
            "lean": not _BELOW <= x["lean"] / x["rollouts"] <= _ABOVE,
            "size": size > _SIZE * max(grpo, _LITTLE) or (grpo > _LITTLE and size < grpo / _SIZE),
        }
        return [name for name, is_out in found.items() if is_out]

    def _decide(self, lasting: bool) -> None:
        if lasting and not self.fallen:
            self.fallen = True
            self._say(
                "From now on groups are uniform, with the group's mean as baseline, because this lasts: %s. The policy "
                "goes on learning, and decides again when all is within bounds for %d steps. fallback=False keeps it "
                "deciding.",
                ", ".join(name for name in REASONS if self._out[name] >= _FALLEN),
                _HEALED,
            )
        elif self.fallen and self._within >= _HEALED:
            self.fallen = False
            self._say("All is within bounds for %d steps: the policy decides again.", _HEALED)

    def _say(self, text: str, *values: object) -> None:
        if not self.quiet:
            logger.warning(text, *values)

    def state_dict(self) -> dict[str, Any]:
        """The state in JSON types, for `load_state_dict`."""
        return {"fallen": self.fallen, "sums": dict(self._sums), "out": dict(self._out), "within": self._within}

    def load_state_dict(self, state: Any) -> None:
        """Restores a saved state. Raises `StateError` if the state is damaged, and then changes nothing."""
        try:
            sums = {name: float(state["sums"][name]) for name in _SUMS}
            out = {name: int(state["out"][name]) for name in REASONS}
            fallen, within = bool(state["fallen"]), int(state["within"])
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"The state of the rails is damaged: {error!r}.") from error
        if not np.isfinite(list(sums.values())).all():
            raise StateError("The state of the rails is not finite: it is damaged.")
        self._sums, self._out, self._within, self.fallen = sums, out, within, fallen and self.fallback

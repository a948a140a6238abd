"""Transfer: how much the success of each domain moved while another domain was trained."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.state import arrays_of, lists_of

__all__ = ["Transfer"]


class Transfer:
    """A ridge regression of the changes of success on the rollouts of each domain.

    A row is a block of 5 steps: the change of each domain's success, and the rollouts of each domain in thousands.
    Older blocks are discounted by 0.98. The effects of domain j on domain i are the solution of ridge regression with
    a penalty of a tenth of one block's mean square. Their uncertainty is its posterior deviation, with the residual
    variance of domain i. If the shares do not vary, the effects cannot be told apart, and the deviations are large.

    Args:
        domains: D.

    >>> transfer, rng = Transfer(2), np.random.default_rng(0)
    >>> success_D = np.zeros(2)
    >>> for _ in range(1000):                       # each 1,000 rollouts of domain 0 move both domains by 0.1
    ...     counts_D = rng.integers(0, 200, size=2)
    ...     success_D = success_D + 0.1 * counts_D[0] / 1000
    ...     transfer.observe(counts_D, success_D + rng.normal(0, 0.001, 2))
    >>> effect_DD, deviation_DD = transfer.effects()
    >>> effect_DD.round(2)
    array([[0.1, 0. ],
           [0.1, 0. ]])
    >>> transfer.sure()
    array([[ True, False],
           [ True, False]])
    """

    block = 5  # steps
    keep = 0.98  # discount of a block

    def __init__(self, domains: int) -> None:
        self.domains = domains
        self._sums = {
            "xx": np.zeros((domains, domains)),
            "xy": np.zeros((domains, domains)),  # rows: rollouts; columns: change of success
            "yy": np.zeros(domains),
            "blocks": np.zeros(1),
            "steps": np.zeros(1),  # of the block that is open
            "counts": np.zeros(domains),
            "success": np.full(domains, np.nan),  # when the block began
        }

    def observe(self, counts_D: Any, success_D: FloatArray) -> None:
        """Adds a step: its rollouts by domain, and each domain's success after it; NaN where it is not known."""
        sums = self._sums
        if np.isnan(sums["success"]).any():
            sums["success"] = np.array(success_D, dtype=np.float64)
            return
        sums["counts"] = sums["counts"] + np.asarray(counts_D) / 1000
        sums["steps"] = sums["steps"] + 1
        if sums["steps"][0] < self.block or np.isnan(success_D).any():
            return
        x_D, y_D = sums["counts"], success_D - sums["success"]
        self._sums = {
            "xx": self.keep * sums["xx"] + np.outer(x_D, x_D),
            "xy": self.keep * sums["xy"] + np.outer(x_D, y_D),
            "yy": self.keep * sums["yy"] + y_D**2,
            "blocks": self.keep * sums["blocks"] + 1,
            "steps": np.zeros(1),
            "counts": np.zeros(self.domains),
            "success": np.array(success_D, dtype=np.float64),
        }

    def effects(self) -> tuple[FloatArray, FloatArray]:
        """Change of success of domain i for 1,000 rollouts of domain j, and its deviation, shape (D, D) each.

        The deviation is infinite before there are D + 2 blocks.
        """
        sums, blocks = self._sums, float(self._sums["blocks"][0])
        if blocks < self.domains + 2:
            return np.zeros((self.domains, self.domains)), np.full((self.domains, self.domains), np.inf)
        penalty = 0.1 * np.trace(sums["xx"]) / self.domains / blocks
        inverse = np.linalg.inv(sums["xx"] + max(penalty, 1e-12) * np.eye(self.domains))
        effect_DD = inverse @ sums["xy"]
        residual_D = sums["yy"] - 2 * (effect_DD * sums["xy"]).sum(axis=0)
        residual_D += np.einsum("ji,jk,ki->i", effect_DD, sums["xx"], effect_DD)
        variance_D = np.maximum(residual_D, 0.0) / (blocks - self.domains)
        return effect_DD.T, np.sqrt(np.outer(variance_D, np.diag(inverse)))

    def sure(self) -> NDArray[np.bool_]:
        """Whether the sign of each effect is sure: four deviations from 0, shape (D, D)."""
        effect_DD, deviation_DD = self.effects()
        return np.asarray(np.abs(effect_DD) > np.maximum(4 * deviation_DD, 1e-9))

    def state_dict(self) -> dict[str, Any]:
        """Everything learned, in types that JSON can hold."""
        return lists_of(self._sums)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()`; raises `StateError`, and changes nothing, if it does not fit."""
        self._sums = arrays_of(state, self._sums, ("success",), "transfer")

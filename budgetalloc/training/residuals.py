"""The residual rewards of each prompt: what its success does not explain, such as a penalty on
length where some prompts need long answers."""

from dataclasses import replace
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import factorize
from budgetalloc.beliefs.state import Stateful, Table
from budgetalloc.policies import Step
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.parts import Part

_KEPT = 0.9  # the share of its weight that a residual keeps at each later rollout of its prompt


class PromptResiduals(Stateful, Part):
    """Keeps the residuals of about the last ten rollouts of each prompt, so that the baseline can
    contain their mean (`beliefs.expected_reward.Offset`).

    If a second reward is always low for a prompt, a baseline from its success alone would give all
    its rollouts negative advantages. GRPO compares them with each other.

    It does nothing where success is the reward. Under a schedule of weights the mean lags, because
    the residuals are those of earlier weights.
    """

    saved = ("_prompts",)

    def __init__(self) -> None:
        lowest = {"residuals": -np.inf, "last": -np.inf}
        self._prompts = Table({"residuals": np.zeros(2), "last": np.nan}, lowest)

    def record(self, rollouts: Rollouts, step: Step) -> Rollouts:
        if rollouts.reward_range is not None:
            return rollouts
        at_R, residuals_R3 = self._prompts.find(rollouts.ids_R), np.zeros((len(rollouts), 3))
        residuals_R3[:, 2] = np.nan
        at_K = at_R[known_R := at_R >= 0]
        residuals_R3[known_R, :2] = self._prompts["residuals"][at_K]
        residuals_R3[known_R, 2] = self._prompts["last"][at_K]
        return replace(rollouts, residuals_R3=residuals_R3)

    def learn(self, rollouts: Rollouts | None, step: Step) -> dict[str, float]:
        if rollouts is None or rollouts.residuals_R3 is None:
            return {}
        own = rollouts.by_beliefs
        residual_R = own.residual_R
        rows = np.flatnonzero(~(np.isnan(residual_R) | rollouts.hinted_R))
        ids_V, group_K = factorize([rollouts.ids_R[at] for at in rows.tolist()])
        n_V, sum_V = np.bincount(group_K), np.bincount(group_K, residual_R[rows])
        at_V, residuals_P2 = self._prompts.add(ids_V), self._prompts["residuals"]
        residuals_P2[at_V] *= (_KEPT**n_V)[:, None]
        residuals_P2[at_V] += np.column_stack([n_V, sum_V])
        self._prompts["last"][at_V[group_K]] = own.rest_R[rows]
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state:  # without one, it begins anew
            super().load_state_dict(state)

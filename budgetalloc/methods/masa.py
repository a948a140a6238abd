"""MASA: prompts by the success rate that the model predicts."""

from dataclasses import replace

from budgetalloc.methods.gates import Predict, gate, predictor_name
from budgetalloc.policies.policy import Policy

__all__ = ["masa"]


def masa(
    *, group: int = 16, predict: Predict | None = None, explore: float = 0.05, seed: int = 0
) -> Policy:
    """Skips prompts predicted to pass always or never: MASA's predictive gating (arXiv 2510.03259).

    In the paper the language model is trained to predict its own success rate. Pass such
    predictions as `predict`: prompts with rates of exactly 0 and 1 are then skipped. Without
    `predict`, posterior means are used, which are never 0 or 1, and prompts outside (0.1, 0.9) are
    skipped. These bounds, `explore` and the default of `group` are our choices. The paper's gating
    code is not public; its length cut-off and its training are not included. See `gate`, also for
    graded success.

    >>> from budgetalloc import Budget
    >>> policy = masa(group=8, predict=lambda view: [{"a": 0.0, "b": 0.2, "c": 1.0}[x] for x in view.ids_P], seed=0)
    >>> policy.allocate(["a", "b", "c"], Budget(rollouts=8, floor=0))
    array([0, 8, 0])
    """
    lo, hi = (0.1, 0.9) if predict is None else (0.0, 1.0)
    policy = gate(group=group, lo=lo, hi=hi, predict=predict, explore=explore, seed=seed)
    return replace(
        policy,
        name=f"masa(group={group}, predict={predictor_name(predict)}, explore={explore}, seed={seed})",
    )

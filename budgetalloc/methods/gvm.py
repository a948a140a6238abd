"""GVM: counts that minimise the variance of a gradient from successes only."""

import math
from collections.abc import Callable
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import Belief, FloatArray
from budgetalloc.errors import InputError, check_array
from budgetalloc.methods.rules import on_drawn_batch
from budgetalloc.methods.table import Between, Count, method, policy
from budgetalloc.policies import Policy, View
from budgetalloc.values import Value

NormOf = Annotated[Callable[[Id], float], "from a prompt's id to the norm of its gradient"]


def gvm_weights(p_P: FloatArray, norm_P: ArrayLike, alpha: float, beta: float) -> FloatArray:
    """GVM's unnormalized share of each prompt, G / sqrt(p + alpha / p^(beta - 1)), shape (P,); 0 at
    p = 0.

    Its maximum is at p = (alpha (beta - 1))^(1 / beta), which is 0.032 with the default constants.

    >>> gvm_weights(np.array([0.0, 0.001, 0.25, 1.0]), 1.0, 1e-3, 2.0).round(3)
    array([0.   , 1.   , 1.984, 1.   ])
    """
    safe_P = np.where(p_P > 0, p_P, 1.0)
    with np.errstate(over="ignore"):  # an infinite penalty gives a share of 0
        share_P = norm_P / np.sqrt(safe_P + alpha * safe_P ** (1.0 - beta))
    return np.where(p_P > 0, share_P, 0.0)


@method("across prompts", "released code", of_rates=True)
def gvm(
    *,
    alpha: Annotated[float, Between(0, math.inf)] = 1e-3,
    beta: Annotated[float, Between(1, math.inf)] = 2.0,
    norm_of: NormOf | None = None,
    group: Count = 8,
    prior: tuple[float, float] = (0.5, 0.5),
    discount: float = 0.9,
    idle: float = 1.0,
    seed: int = 0,
) -> Policy:
    """Gives more rollouts to prompts with large gradients and few successes, except where successes
    are very rare. It is meant for rejection sampling, which trains on successes only, and reduces
    the variance of its gradient.

    Formula: n in proportion to G / sqrt(p + alpha / p^(beta - 1)), G the gradient norm.

    Source: GVM-RAFT (arXiv 2505.02391). Compared with the released code. The posterior mean
    replaces the pilot.

    G = 1 unless `norm_of` is given. With `floor=0` a batch of prompts is drawn first. Graded
    success enters through its mean. Rejection sampling trains on successes only: a prompt's
    gradient has a variance of about G^2 / (p n). alpha and beta penalize prompts that rarely
    succeed.

    Args:
        norm_of: The gradient norm of a prompt, the same on every process and after a resume.
        group: Mean rollouts of a prompt of the drawn batch. A budget in tokens or with quotas
            chooses among all prompts instead.

    >>> from budgetalloc import Budget
    >>> policy = gvm(prior=(0.01, 0.01))
    >>> policy.observe(["easy"] * 16 + ["quarter"] * 16, [1] * 16 + [0, 0, 0, 1] * 4)
    >>> policy.allocate(["easy", "quarter"], Budget(rollouts=12))
    array([4, 8])
    """

    def value_of(view: View) -> Value:
        norms = [1.0 if norm_of is None else norm_of(x) for x in view.ids_P]
        norm_P = check_array("norm_of", norms, "a function that returns a number")
        wrong_P = ~(np.isfinite(norm_P) & (norm_P >= 0))
        if wrong_P.any():
            at = int(np.argmax(wrong_P))
            raise InputError(
                f"norm_of({view.ids_P[at]!r}) = {norms[at]}: a gradient norm is finite and not "
                "negative."
            )
        squares_P = gvm_weights(view.belief_P.mean, norm_P, alpha, beta) ** 2

        def value(belief: Belief, counts_N: ArrayLike) -> FloatArray:
            return np.outer(1.0 - 1.0 / np.maximum(np.asarray(counts_N), 1), squares_P).T

        return value

    fades = {"prior": prior, "discount": discount, "idle": idle}
    return policy(on_drawn_batch(value_of, group), **fades)

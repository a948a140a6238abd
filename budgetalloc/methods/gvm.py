"""GVM: counts that minimise the variance of a gradient from successes only."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import Belief, FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import (
    InputError,
    check_array,
    check_function,
    check_integer,
    check_number,
    shown,
)
from budgetalloc.methods.prompt_selection import drawn_batch
from budgetalloc.policies.composition import spend
from budgetalloc.policies.interface import Needs, View
from budgetalloc.policies.policy import Policy

__all__ = ["gvm", "gvm_weights"]


def gvm_weights(
    p_P: ArrayLike, norm_P: ArrayLike = 1.0, alpha: float = 1e-3, beta: float = 2.0
) -> FloatArray:
    """GVM's unnormalized share of each prompt, G / sqrt(p + alpha / p^(beta - 1)), shape (P,); 0 at
    p = 0.

    Its maximum is at p = (alpha (beta - 1))^(1 / beta), which is 0.032 with the default constants.

    >>> gvm_weights([0.0, 0.001, 0.25, 1.0]).round(3)
    array([0.   , 1.   , 1.984, 1.   ])
    """
    p = check_array("p_P", p_P, "one success rate per prompt")
    norm = check_array("norm_P", norm_P, "one gradient norm, or one per prompt")
    if not ((p >= 0) & (p <= 1)).all() or norm.shape not in ((), (1,), p.shape):
        raise InputError(
            f"p_P={shown(p_P)}, norm_P={shown(norm_P)}: give rates in [0, 1]; one norm, or one per "
            "rate."
        )
    check_number("alpha", alpha, 0, np.inf)
    check_number("beta", beta, 1, np.inf)
    safe = np.where(p > 0, p, 1.0)
    with np.errstate(over="ignore"):  # an infinite penalty gives a share of 0
        return np.asarray(np.where(p > 0, norm / np.sqrt(safe + alpha * safe ** (1.0 - beta)), 0.0))


def gvm(
    *,
    alpha: float = 1e-3,
    beta: float = 2.0,
    norm_of: Callable[[Id], float] | None = None,
    group: int = 8,
    prior: tuple[float, float] = (0.5, 0.5),
    discount: float = 0.9,
    idle: float = 1.0,
    seed: int = 0,
) -> Policy:
    """Counts proportional to G / sqrt(p + alpha / p^(beta-1)): hard prompts get more (GVM-RAFT,
    arXiv 2505.02391).

    Rejection sampling trains on successes only. A prompt's gradient therefore has a variance of
    about G^2 / (p n), with p its accept rate and G the norm of its gradient. alpha and beta
    penalize prompts that rarely succeed. With w = `gvm_weights`, the integer counts minimise sum
    w^2 / n. p is the posterior mean, which is never 0 and needs no pilot. For graded success, the
    mean takes the place of the accept rate. In the released code p is the share of successes in a
    pilot. The code rounds the shares, gives nothing to a prompt whose pilot had no success, and may
    drop more by thresholds.

    Every prompt gets at least the smallest group. With `floor=0`, prompts are first drawn at
    random, as many as groups of `group` fit into the budget. A budget in tokens or with quotas
    instead chooses among all.

    Args:
        alpha, beta: Weight of the penalty, at least 0, and its power, at least 1; the released
            code's.
        norm_of: The gradient norm of a prompt, not negative, the same on every process and after a
            resume. None is 1.
        group: Mean rollouts of a drawn prompt, at least 1; our default.
        prior, discount, idle: As in `BetaEstimator`; our default.
        seed: Seeds the drawn batch and the ties.

    >>> from budgetalloc import Budget
    >>> policy = gvm(prior=(0.01, 0.01))
    >>> policy.observe(["easy"] * 16 + ["quarter"] * 16, [1] * 16 + [0, 0, 0, 1] * 4)
    >>> policy.allocate(["easy", "quarter"], Budget(rollouts=12))
    array([4, 8])
    """
    check_number("alpha", alpha, 0, np.inf)
    check_number("beta", beta, 1, np.inf)
    if norm_of is not None:
        check_function("norm_of", norm_of, "from a prompt's id to the norm of its gradient")
    check_integer("group", group, 1)

    def decide(view: View) -> IntArray:
        batch = drawn_batch(view, group)
        norm_P = np.ones(len(batch.ids_P)) if norm_of is None else _norms(norm_of, batch.ids_P)
        squares_P = gvm_weights(batch.belief_P.mean, norm_P, alpha, beta) ** 2

        def value(belief: Belief, counts_N: ArrayLike) -> FloatArray:
            return np.outer(1.0 - 1.0 / np.maximum(np.asarray(counts_N), 1), squares_P).T

        counts_P = np.zeros(len(view.belief_P), dtype=np.int64)
        counts_P[: len(batch.belief_P)] = spend(batch.belief_P, value, batch, None)
        return counts_P

    estimator = BetaEstimator(prior=prior, discount=discount, idle=idle)
    named = None if norm_of is None else getattr(norm_of, "__name__", type(norm_of).__name__)
    settings = f"alpha={alpha}, beta={beta}, norm_of={named}, group={group}"
    name = (
        f"gvm({settings}, prior={estimator.prior!r}, discount={discount}, idle={idle}, seed={seed})"
    )
    return Policy(name, decide, estimator, seed, Needs(baseline="group"))


def _norms(norm_of: Callable[[Id], float], ids_P: Sequence[Id]) -> FloatArray:
    norm_P = check_array("norm_of", [norm_of(x) for x in ids_P], "a function that returns a number")
    wrong_P = ~(np.isfinite(norm_P) & (norm_P >= 0))
    if wrong_P.any():
        at = int(np.argmax(wrong_P))
        raise InputError(
            f"norm_of({ids_P[at]!r}) = {norm_P[at]}: a gradient norm is finite and not negative."
        )
    return norm_P

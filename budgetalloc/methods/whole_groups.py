"""Whole groups: mixed ones first, or those that hold most of the variance."""

from budgetalloc.errors import check_number
from budgetalloc.methods.downselect.rules import mixed_first, top_p_variance
from budgetalloc.methods.oversampling import generate_and_keep
from budgetalloc.policies.policy import Policy

__all__ = ["keep_mixed", "top_p"]


def keep_mixed(*, generate: int = 2, seed: int = 0) -> Policy:
    """Trains on mixed groups first: DAPO's filter (arXiv 2503.14476) in one round, without
    resampling.

    If there are too few such rows, other rows fill the batch, with advantage 0. Use `dapo` to
    resample instead.

    Args:
        generate: Rollouts generated for each one trained on, at least 2. The default is our choice.
        seed: Seeds the ties.

    >>> import numpy as np
    >>> policy = keep_mixed(generate=2)
    >>> policy.keep(["a"] * 2 + ["b"] * 2, np.array([1.0, 1, 0, 1]), 2)
    array([2, 3])
    """
    return generate_and_keep("keep_mixed", generate, mixed_first, seed)


def top_p(*, generate: int = 2, share: float = 0.9, seed: int = 0) -> Policy:
    """Trains on the groups that hold `share` of all reward variance: SNR-aware filter (RAGEN-2,
    arXiv 2604.06268).

    The batch has a fixed size. Surplus rows are cut from the kept groups of least variance. Missing
    rows come from the dropped groups of least variance, whose rewards are usually equal, so that
    their advantage is 0.

    Args:
        generate: Rollouts generated for each one trained on, at least 2. The default is our choice.
        share: p in (0, 1]. The default is our choice.
        seed: Seeds the ties.

    >>> import numpy as np
    >>> policy = top_p(generate=2, share=0.5)
    >>> policy.keep(["a"] * 4 + ["b"] * 4, np.array([0.0, 0, 0, 1, 1, 1, 0, 0]), 4)
    array([4, 5, 6, 7])
    """
    share = check_number("share", share, 0, 1, without=(0,))

    return generate_and_keep(
        "top_p",
        generate,
        lambda ids, rewards, rows, *_: top_p_variance(ids, rewards, share, rows),
        seed,
        f", share={share}",
    )

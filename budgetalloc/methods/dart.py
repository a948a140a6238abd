"""DART: fewer rollouts for easy prompts."""

import numpy as np

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.budget import IntArray
from budgetalloc.errors import check_integer, check_number
from budgetalloc.methods.prompt_selection import batch, in_proportion, keep_only
from budgetalloc.policies.interface import Needs, View
from budgetalloc.policies.policy import Policy

__all__ = ["dart"]


def dart(
    *, group: int = 8, reduced: int = 4, easy: float = 0.6, discount: float = 0.9, seed: int = 0
) -> Policy:
    """Fewer rollouts for prompts that pass more than 60 %: DART's dynamic rollout number (arXiv
    2509.23866).

    A prompt whose posterior mean is above `easy` gets `reduced` rollouts; all others, including
    cold ones, get `group`. With `floor=0`, the rollouts saved go to further prompts drawn at
    random; with a floor, to all prompts in proportion. Graded success enters through its mean. The
    paper's formula for the reduction was not found, and the released code has a fixed number. The
    paper's limits on length, experience pool and choice of steps are not included.

    Args:
        group: Rollouts of a prompt, at least `reduced`.
        reduced: Rollouts of an easy prompt, at least 1; our default.
        easy: Success rate above which a prompt counts as easy, in [0, 1].
        discount: As in `BetaEstimator`; our default.
        seed: Seeds the batch and the ties.

    >>> from budgetalloc import Budget
    >>> policy = dart(seed=0)
    >>> policy.observe(["easy"] * 8 + ["half"] * 8, [1] * 8 + [0, 1] * 4)
    >>> policy.allocate(["easy", "half", "new"], Budget(rollouts=20))
    array([4, 8, 8])
    """
    check_integer("group", group, 1)
    check_integer("reduced", reduced, 1, group)
    check_number("easy", easy, 0, 1)

    def decide(view: View) -> IntArray:
        wanted_P = np.where(view.belief_P.mean > easy, reduced, group)
        return in_proportion(
            wanted_P if view.budget.fewest else keep_only(wanted_P, batch(wanted_P, view)), view
        )

    name = f"dart(group={group}, reduced={reduced}, easy={easy}, discount={discount}, seed={seed})"
    return Policy(name, decide, BetaEstimator(discount=discount), seed, Needs(baseline="group"))

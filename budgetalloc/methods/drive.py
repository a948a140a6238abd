"""DRIVE: phases that keep fewer and fewer of the hardest prompts, with many rollouts each."""

from collections.abc import Sequence

import numpy as np

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_integer, check_list, check_number
from budgetalloc.methods.prompt_selection import batch, in_proportion, keep_only
from budgetalloc.policies.interface import Needs, View
from budgetalloc.policies.policy import Policy

__all__ = ["Phase", "drive"]

Phase = tuple[float, int, int]


_DRIVE: tuple[Phase, ...] = (
    (1.0, 32, 8),
    (72 / 175, 64, 64),
    (50 / 175, 32, 64),
    (25 / 175, 32, 64),
)


def drive(*, phases: Sequence[Phase] = _DRIVE, discount: float = 0.9, seed: int = 0) -> Policy:
    """Phases that keep fewer and fewer of the hardest prompts, with many rollouts each (DRIVE,
    arXiv 2511.06307).

    A phase is (keep, steps, n): for `steps` steps, only the share `keep` of the candidates with the
    lowest posterior means gets rollouts, n each. If the step has no room for all of them, they are
    drawn at random. The last phase continues to the end of the run. The rest of the budget is
    divided evenly among the kept prompts; with a floor every prompt gets the floor first. A prompt
    that is not kept may be left out for the rest of the run. For graded success the rule uses its
    mean, whatever the variance.

    The paper's first stage gives 8 rollouts to each of 9k prompts for 32 steps. Its second keeps
    the hardest 72, 50 and 25 of 175 other prompts for 64, 32 and 32 steps, with 64 rollouts by the
    abstract and the setup and 80 by the method section; our default is 64. The paper evaluates the
    175 prompts once, before that stage. Here the posterior mean is used, so that a solved prompt
    makes room for another, and a prompt never seen counts as the prior's 1/2.

    Args:
        phases: At least one of (keep, steps, n): keep in (0, 1], steps and n at least 1.
        discount: As in `BetaEstimator`; our default.
        seed: Seeds the draws and the ties.

    >>> from budgetalloc import Budget
    >>> policy = drive(phases=[(1.0, 1, 8), (0.25, 1, 16)], seed=0)
    >>> ids, budget = ["easy", "half", "never", "new"], Budget(rollouts=16, floor=0)
    >>> policy.allocate(ids, budget)
    array([0, 8, 0, 8])
    >>> policy.observe(["easy"] * 8 + ["half"] * 8 + ["never"] * 8, [1] * 8 + [0, 1] * 4 + [0] * 8)
    >>> policy.allocate(ids, budget)
    array([ 0,  0, 16,  0])
    """
    checked = [
        _check_phase(phase)
        for phase in check_list("phases", phases, "(keep, steps, n) for each phase")
    ]
    if not checked:
        raise InputError(
            f"phases={phases!r}: give at least one (keep, steps, n), such as (0.4, 64, 64)."
        )
    ends = np.cumsum([steps for _, steps, _ in checked[:-1]])

    def decide(view: View) -> IntArray:
        keep, _, n = checked[int(np.searchsorted(ends, view.step, side="right"))]
        hardest = np.argsort(view.belief_P.mean, kind="stable")
        number = max(1, round(keep * len(hardest)))
        # Kept prompts come in the view's random order; the others follow, for a cap that needs more
        # prompts.
        order = np.concatenate([np.sort(hardest[:number]), hardest[number:]])
        wanted_P = np.full(len(hardest), n)
        return in_proportion(keep_only(wanted_P, batch(wanted_P, view, order, number)), view)

    shown = ", ".join(f"({keep:.4g}, {steps}, {n})" for keep, steps, n in checked)
    name = f"drive(phases=[{shown}], discount={discount}, seed={seed})"
    return Policy(
        name,
        decide,
        BetaEstimator(discount=discount),
        seed,
        Needs(candidates="all", baseline="group"),
    )


def _check_phase(phase: Phase) -> Phase:
    if not isinstance(phase, (tuple, list)) or len(phase) != 3:
        raise InputError(
            f"phases holds {phase!r}: a phase is (keep, steps, n), such as (0.4, 64, 64)."
        )
    keep, steps, n = phase
    share = check_number("keep", keep, 0, 1, without=(0,))
    return share, check_integer("steps", steps, 1), check_integer("n", n, 1)

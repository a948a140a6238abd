"""DRIVE: phases that keep fewer and fewer of the hardest prompts, with many rollouts each."""

from collections.abc import Sequence

import numpy as np

from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_integer, check_list, check_number
from budgetalloc.methods.rules import batch, in_proportion
from budgetalloc.methods.table import method, policy
from budgetalloc.policies import Policy, View

Phase = tuple[float, int, int]
_DRIVE = ((1.0, 32, 8), (72 / 175, 64, 64), (50 / 175, 32, 64), (25 / 175, 32, 64))


@method("which prompts", "paper's formulas", starves=True, of_rates=True)
def drive(*, phases: Sequence[Phase] = _DRIVE, discount: float = 0.9, seed: int = 0) -> Policy:
    """Trains in phases on ever smaller shares of the hardest prompts, with many rollouts each. It
    is meant for hard problems such as those of competitive programming, after a training on all
    prompts.

    Formula: phases (keep, steps, n): the share `keep` with the lowest E[p], n rollouts each.

    Source: DRIVE (arXiv 2511.06307). Compared with the paper's formulas. The paper has 72, 50 and
    25 of 175 prompts and n = 64 (the paper also says 80). It evaluates the prompts once, whereas
    here a solved prompt makes room for another.

    Other prompts are left out on purpose. The last phase continues to the end of the run. Graded
    success enters through its mean.

    Args:
        phases: At least one of (keep, steps, n): keep in (0, 1], steps and n at least 1.

    >>> from budgetalloc import Budget
    >>> policy = drive(phases=[(1.0, 1, 8), (0.25, 1, 16)], seed=0)
    >>> policy.observe(["easy"] * 8 + ["half"] * 8 + ["never"] * 8, [1] * 8 + [0, 1] * 4 + [0] * 8)
    >>> policy.allocate(["easy", "half", "never", "new"], Budget(rollouts=16, floor=0))
    array([ 0,  0, 16,  0])
    """
    given = check_list("phases", phases, "(keep, steps, n) for each phase")
    checked = [_check_phase(phase) for phase in given]
    if not checked:
        raise InputError("phases", "give at least one (keep, steps, n).", phases)
    ends = np.cumsum([steps for _, steps, _ in checked[:-1]])

    def decide(view: View) -> IntArray:
        keep, _, n = checked[int(np.searchsorted(ends, view.step, side="right"))]
        hardest = np.argsort(view.belief_P.mean, kind="stable")
        number = max(1, round(keep * len(hardest)))
        # Kept prompts come in the view's random order; the others follow, for a cap that needs more
        # prompts.
        order = np.concatenate([np.sort(hardest[:number]), hardest[number:]])
        wanted_P = np.full(len(hardest), n)
        return in_proportion(wanted_P, view, batch(wanted_P, view, order, number))

    return policy(decide, discount=discount, candidates="all")


def _check_phase(phase: Phase) -> Phase:
    if not isinstance(phase, (tuple, list)) or len(phase) != 3:
        raise InputError(
            "phases", f"holds {phase!r}: a phase is (keep, steps, n), such as (0.4, 64, 64)."
        )
    keep, steps, n = phase
    share = check_number("keep", keep, 0, 1, without=(0,))
    return share, check_integer("steps", steps, 1), check_integer("n", n, 1)

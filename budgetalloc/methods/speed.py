"""SPEED: a screening, then more rollouts for prompts with both outcomes."""

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.errors import check_integer
from budgetalloc.policies.interface import Needs, Rounds, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.rounds import until_finished

__all__ = ["speed"]


def speed(*, init: int = 4, cont: int = 20, seed: int = 0) -> Policy:
    """Screens prompts with `init` rollouts and continues those with both outcomes by `cont` (SPEED,
    arXiv 2506.09016).

    A round continues the prompts that the previous round screened and screens new ones, until the
    budget is spent. The paper does both in one call of the inference engine. Rollouts that no
    prompt needs go to the prompts with the fewest. A step may take a dozen rounds, the last of them
    small. The paper trains on continued prompts only; here a prompt that was not continued stays in
    the batch, with `init` equal rewards. 4 and 20 are the examples of the paper's project page.

    Among continued prompts, the mean of the screening rewards is biased towards 1/2: it is (p -
    p^k) / (1 - p^k - (1-p)^k) for k = `init`, which is 0.29 for p = 0.1 and k = 4. A baseline that
    contains these rewards is biased; the posterior mean before the step,
    `baseline=policy.belief(ids_R).mean`, is unbiased.

    Args:
        init: Rollouts to screen a prompt with, at least 2.
        cont: Rollouts to continue it with, at least 1.
        seed: Seeds the order in which prompts are screened.

    >>> from budgetalloc import Budget
    >>> step = speed(init=2, cont=4, seed=0).begin(["a", "b", "c", "d"], Budget(rollouts=12, floor=0))
    >>> step.request()
    array([2, 2, 0, 0])
    >>> step.observe(["a", "a", "b", "b"], [0, 1, 1, 1]); step.request()  # a continues; the rest will screen another
    array([4, 0, 0, 0])
    """
    check_integer("init", init, 2)
    check_integer("cont", cont, 1)

    def decide(view: View) -> Rounds:
        every = view.rollouts_only("speed")
        return until_finished(view, init, cont, init + cont, lambda tally: ~tally.mixed(), every)

    needs = Needs(candidates=-(-(init + cont) // init), baseline="group", by_group=True)
    return Policy(
        f"speed(init={init}, cont={cont}, seed={seed})", decide, BetaEstimator(), seed, needs
    )

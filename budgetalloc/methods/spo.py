"""SPO and SPO++: single rollouts of prompts drawn by their deviation, with a tracked success rate
as the baseline."""

from typing import Annotated

import numpy as np

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.memory import Memory
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.methods.offline import InitialSuccess, Offline
from budgetalloc.methods.rules import drawn_first, ranked
from budgetalloc.methods.table import AboveZero, Between, method
from budgetalloc.policies import Policy, View

Rho = Annotated[float, Between(0, 1, without=(1,))]


@method("which prompts", "released code", of_rates=True)
def spo(
    *, rho: Rho = 0.875, eps: AboveZero = 0.05, offline: Offline = None, seed: int = 0
) -> Policy:
    """Gives single rollouts to prompts whose success varies, and compares each reward with the
    prompt's own success so far. There are no groups, so none is lost to equal rewards or waits for
    its longest rollout.

    Formula: one each, drawn by sqrt(v(1-v)) + 0.05, v = alpha / (alpha + beta), alpha <- rho alpha
    + r.

    Source: SPO (arXiv 2509.13232). Compared with the released code. rho is the constant 0.875 of
    the code's option, without its dependence on drift. Like the code, and unlike the paper's text,
    this draws by v, not by a Thompson draw.

    The baseline is v, and advantages are whitened. `offline` takes the eight offline rollouts,
    given or charged to the run. The belief starts at Beta(1/2, 1/2), or with mass N0 = 1 / (1 -
    rho) at the Jeffreys-smoothed mean of s successes in n offline rollouts: alpha = N0 (s + 1/2) /
    (n + 1). Graded success enters through v and through its variance as a share of v(1-v).

    Args:
        rho: Share of alpha and beta kept at a visit.
        eps: Weight of a prompt without spread.
        offline: Rollouts before training. None; a mapping from a prompt's id to its (successes,
            rollouts); or their number, such as 8. A number is charged to the run: its first steps
            measure every candidate and train on nothing.

    >>> from budgetalloc import Budget
    >>> policy = spo(offline={"half": (4, 8), "solved": (8, 8)}, seed=0)
    >>> step = policy.begin(["half", "solved", "new"], Budget(rollouts=3, floor=0, min_group=1))
    >>> step.expected_success(["half", "solved", "new"], [1, 1, 0]).round(3)  # 4.5/9, 8.5/9, 1/2
    array([0.5  , 0.944, 0.5  ])
    """
    return _single_stream(rho, eps, offline, by_step=False)


@method("which prompts", "paper's formulas", of_rates=True)
def spo_pp(
    *, rho: Rho = 0.875, eps: AboveZero = 0.05, offline: Offline = None, seed: int = 0
) -> Policy:
    """Gives single rollouts as `spo` does, and forgets old results at every step, also of prompts
    that were not visited. The baseline then relies less on what an earlier model earned.

    Formula: spo with alpha and beta fading by rho at every step, advantages whitened over tokens.

    Source: SPO++ (arXiv 2608.24870). Compared with the paper's formulas. The clipping, which is
    part of the trainer's loss, is left out.

    `offline` and graded success are as in `spo`.

    >>> from budgetalloc import Budget
    >>> policy = spo_pp(rho=0.5)
    >>> for x, reward in (("a", 1), ("b", 0), ("a", 0)):
    ...     policy.observe([x], [reward])  # a: (1/2 + 1) / 4 and (1/2) / 4 + 1
    >>> step = policy.begin(["a"], Budget(rollouts=1, floor=0, min_group=1))
    >>> step.expected_success(["a"], [0])  # 0.375 / 1.5
    array([0.25])
    """
    return _single_stream(rho, eps, offline, by_step=True)


def _single_stream(rho: float, eps: float, offline: Offline, by_step: bool) -> Policy:
    """The policy of both. With `by_step`, alpha and beta fade at every step instead of every
    visit. The memory holds them, because their start fades too; the estimator is for metrics."""
    reference = InitialSuccess(offline)

    def learn(memory: Memory, seen: ByPrompt) -> None:
        trained_P, columns = reference.learn(memory, seen), memory.columns
        at_P = memory.rows(seen.ids_P)
        at, successes_P = at_P[trained_P], seen.successes_P[trained_P]
        failures_P = seen.n_P[trained_P] - successes_P
        kept_P = rho ** (memory.step - columns["last"][at]) if by_step else rho
        columns["start"][at] *= kept_P
        columns["successes"][at] = kept_P * columns["successes"][at] + successes_P
        columns["failures"][at] = kept_P * columns["failures"][at] + failures_P
        columns["last"][at_P] = memory.step

    def value(view: View) -> FloatArray:
        recall, (successes_P, rollouts_P) = view.recall, reference.results(view)
        mass_P = np.where(rollouts_P > 0, 1 / (1 - rho), 1.0) * recall["start"]
        alpha_P = mass_P * (successes_P + 0.5) / (rollouts_P + 1) + recall["successes"]
        beta_P = mass_P * (rollouts_P - successes_P + 0.5) / (rollouts_P + 1) + recall["failures"]
        return np.asarray(alpha_P / (alpha_P + beta_P))

    def decide(view: View) -> IntArray:
        value_P = value(view)
        weight_P = np.sqrt(value_P * (1 - value_P) * view.belief_P.spread_P) + eps
        return ranked(drawn_first(weight_P, view.rng), 1, view)

    return reference.policy(
        decide,
        lambda view, seen: value(view),
        learn,
        {"start": 1.0, "successes": 0.0, "failures": 0.0, "last": 0.0},
        estimator=BetaEstimator(idle=rho) if by_step and rho else BetaEstimator(discount=rho),
        scale="whiten_tokens" if by_step else "whiten",
        min_group=1,
    )

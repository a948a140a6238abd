"""SPO and SPO++: single rollouts of prompts drawn by their deviation, with a tracked success rate
as the baseline."""

from collections.abc import Mapping, Sequence

import numpy as np

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.graded_success import rescaled
from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.memory import Memory, Visit
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import check_number
from budgetalloc.methods.initial_success import COLUMNS, InitialSuccess, Offline, rescale_results
from budgetalloc.policies.advantages import Scale
from budgetalloc.policies.interface import Needs, Outcome, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.ranking import drawn_first, ranked

__all__ = ["spo", "spo_pp"]


def spo(*, rho: float = 0.875, eps: float = 0.05, offline: Offline = None, seed: int = 0) -> Policy:
    """Groups of one, drawn without replacement by sqrt(v(1-v) g) + eps; the baseline is v (SPO,
    arXiv 2509.13232).

    v is the mean of Beta(alpha, beta), which a visit updates to rho alpha + successes and rho beta
    + failures, so that its mass tends to 1 / (1 - rho). It starts at Beta(1/2, 1/2), or with mass
    N0 = 1 / (1 - rho) at the Jeffreys-smoothed mean of s successes in n offline rollouts: alpha =
    N0 (s + 1/2) / (n + 1). Advantages r - v are centred over the batch and divided by its standard
    deviation (`scale="whiten"`). If all rewards of a batch are equal, there is no gradient. Graded
    success enters through v and g, the variance of a prompt's successes as a share of v(1-v)
    (`Beta.spread_P`): 1 for successes of 0 and 1, less for graded ones.

    Like the released code, and unlike the paper's text, this draws by v, not by a Thompson draw.
    The code's default rho falls with the drift of the prompt's last response under the new policy,
    from 0.96 to 0.875, which takes two extra forward passes a step; here rho is the constant of its
    option. It gives a prompt at most one rollout a step; here a surplus that no new prompt can take
    goes to the prompts drawn. The paper's weight has a second factor, a power of the evidence, that
    the code lacks. The paper's budget excludes the method's eight offline rollouts of each prompt.

    Args:
        rho: Share of alpha and beta kept at a visit, in [0, 1).
        eps: Weight of a prompt without spread, in (0, 1].
        offline: Rollouts before training. None; a mapping from a prompt's id to its (successes,
            rollouts); or their number, such as 8. A number is charged to the run: its first steps
            measure every candidate and train on nothing
            (`methods.initial_success.InitialSuccess`).
        seed: Seeds the draws.

    >>> from budgetalloc import Budget
    >>> policy = spo(offline={"half": (4, 8), "solved": (8, 8)}, seed=0)
    >>> step = policy.begin(["half", "solved", "new"], Budget(rollouts=3, floor=0, min_group=1))
    >>> step.request()
    array([1, 1, 1])
    >>> step.expected_success(["half", "solved", "new"], [1, 1, 0]).round(3)  # 4.5 / 9, 8.5 / 9, 1 / 2
    array([0.5  , 0.944, 0.5  ])
    """
    return _single_stream("spo", rho, eps, offline, False, "whiten", seed)


def spo_pp(
    *, rho: float = 0.875, eps: float = 0.05, offline: Offline = None, seed: int = 0
) -> Policy:
    """SPO whose evidence fades with every step, and whose advantages are centred by tokens (SPO++,
    arXiv 2608.24870).

    Two changes to `spo`: alpha and beta, their start included, keep the share rho at every step
    instead of every visit. Mean and deviation of the advantages are those of tokens, as in a loss
    that averages over tokens (`scale="whiten_tokens"`). v of a prompt without visits stays, and its
    next visit outweighs the evidence before. The paper's dual clip of 2 and its truncated
    importance weights belong to the trainer's loss. Graded success enters as in `spo`.

    Args:
        rho: Share of alpha and beta kept at a step, in [0, 1).
        eps, offline, seed: As in `spo`.

    >>> from budgetalloc import Budget
    >>> policy = spo_pp(rho=0.5)
    >>> policy.observe(["a"], [1])  # 1/2 + 1 and 1/2
    >>> policy.observe(["b"], [0])
    >>> policy.observe(["a"], [0])  # after two steps: (1/2 + 1) / 4 and 1/8 + 1
    >>> step = policy.begin(["a"], Budget(rollouts=1, floor=0, min_group=1))
    >>> step.expected_success(["a"], [0])  # 0.375 / 1.5
    array([0.25])
    """
    return _single_stream("spo_pp", rho, eps, offline, True, "whiten_tokens", seed)


def _single_stream(
    method: str, rho: float, eps: float, offline: Offline, by_step: bool, scale: Scale, seed: int
) -> Policy:
    """The policy of both. With `by_step`, alpha and beta fade at every step instead of every
    visit."""
    reference = InitialSuccess.of(offline)
    check_number("rho", rho, 0, 1, without=(1,))
    check_number("eps", eps, 0, 1, without=(0,))

    def learn(memory: Memory, visit: Visit) -> None:
        trained_V, columns = reference.learn(memory, visit), memory.columns
        at, successes_V = visit.at_V[trained_V], visit.successes_V[trained_V]
        kept_V = rho ** (visit.step - columns["last"][at]) if by_step else rho
        columns["start"][at] *= kept_V
        columns["successes"][at] = kept_V * columns["successes"][at] + successes_V
        columns["failures"][at] = (
            kept_V * columns["failures"][at] + visit.scored_V[trained_V] - successes_V
        )
        columns["last"][visit.at_V] = visit.step

    def rescale(memory: Memory, scale: float, shift: float) -> None:
        rescale_results(memory, scale, shift)
        columns = memory.columns
        evidence = columns["successes"], columns["failures"]
        columns["successes"], columns["failures"], _ = rescaled(
            *evidence, np.zeros_like(evidence[0]), scale, shift
        )

    def value(ids_P: Sequence[Id], recall: Mapping[str, FloatArray]) -> FloatArray:
        successes_P, rollouts_P = reference.results(ids_P, recall)
        mass_P = np.where(rollouts_P > 0, 1 / (1 - rho), 1.0) * recall["start"]
        alpha_P = mass_P * (successes_P + 0.5) / (rollouts_P + 1) + recall["successes"]
        beta_P = mass_P * (rollouts_P - successes_P + 0.5) / (rollouts_P + 1) + recall["failures"]
        return np.asarray(alpha_P / (alpha_P + beta_P))

    def decide(view: View) -> IntArray:
        value_P = value(view.ids_P, view.recall)
        return ranked(
            drawn_first(np.sqrt(value_P * (1 - value_P) * view.belief_P.spread_P) + eps, view.rng),
            1,
            view,
        )

    def expect(outcome: Outcome) -> FloatArray:
        return reference.untrained(outcome, value(outcome.ids_G, outcome.recall_G))

    # The memory holds alpha and beta, whose start fades too; the estimator is for metrics.
    memory = Memory(
        {"start": 1.0, "successes": 0.0, "failures": 0.0, "last": 0.0, **COLUMNS},
        learn,
        rescale=rescale,
    )
    name = f"{method}(rho={rho}, eps={eps}, offline={reference}, seed={seed})"
    estimator = BetaEstimator(idle=rho) if by_step and rho else BetaEstimator(discount=rho)
    needs, rule = (
        Needs(candidates="all", baseline="policy", scale=scale, min_group=1),
        reference.measured_first(decide),
    )
    return Policy(name, rule, estimator, seed, needs, memory=memory, expect=expect)

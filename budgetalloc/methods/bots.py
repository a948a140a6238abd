"""BOTS: beliefs that learn from visits and, between visits, from how capable the model has
become."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.graded_success import rescaled
from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.memory import Memory, Visit
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_integer, check_number, check_type, shown
from budgetalloc.policies.interface import Needs, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.ranking import ranked

__all__ = ["bots", "implicit", "name_of"]

_WINDOW = 64  # steps of implicit evidence; with lambda = 0.2, older evidence weighs less than 1e-6
_KEPT = 0.9  # share of the capability kept at a step


def name_of(step: int) -> str:
    """The number of the memory that holds a step's capability."""
    return f"capability {step % _WINDOW}"


def implicit(anchors_P2: FloatArray, capability_S: FloatArray) -> FloatArray:
    """The success that each capability implies: between the anchors' rates, clipped, shape (P,
    S)."""
    low_P, rise_P = anchors_P2[:, :1], np.diff(anchors_P2, axis=1)
    return np.asarray(np.clip(low_P + rise_P * capability_S, 0.0, 1.0))


def bots(
    *,
    group: int = 8,
    rate: float = 0.2,
    weight: float = 0.2,
    anchors: Mapping[Id, Sequence[float]] | None = None,
    target: float = 0.5,
    seed: int = 0,
) -> Policy:
    """The prompts whose Thompson draw is nearest to 1/2; beliefs fade at every step (BOTS, arXiv
    2510.26374).

    At every step each belief becomes alpha <- (1 - rate) alpha + rate + e, from Beta(1, 1), and
    beta likewise. For a visited prompt, e is its successes. For any other it is `weight` times
    `group` times the success p~ that the model's capability c implies, p~ = clip(f0 + (f1 - f0) c,
    0, 1), where f0 and f1 are the rates of two anchor models (`implicit`). c is a running mean,
    with 0.9, of (mean pass rate - mean f0) / (mean f1 - mean f0) over a step's prompts. Without
    anchors an unvisited prompt returns to Beta(1, 1). Graded success enters through its mean alone.

    This follows the released estimator, without its option to halve the weight after bad
    predictions. The estimator knows passes of a fixed number of rollouts; here the number is free.
    Evidence older than 64 steps is left out.

    Args:
        group: Rollouts of a chosen prompt, at least 1, and m of the implicit evidence.
        rate: lambda, the share of a belief that fades at a step, in (0, 1).
        weight: rho, in [0, 1].
        anchors: The success rates (f0, f1) of a weaker and a stronger model, by prompt.
        target: Preferred success rate, in [0, 1].
        seed: Seeds the draws.

    >>> from budgetalloc import Budget
    >>> policy = bots(anchors={"seen": (0.0, 1.0), "like it": (0.0, 1.0), "harder": (0.0, 0.1)}, seed=0)
    >>> for _ in range(20):
    ...     policy.observe(["seen"] * 8, [0, 1] * 4)  # the capability is 1/2
    >>> policy.allocate(["like it", "harder"], Budget(rollouts=8, floor=0))
    array([8, 0])
    """
    check_integer("group", group, 1)
    check_number("rate", rate, 0, 1, without=(0, 1))
    check_number("weight", weight, 0, 1)
    check_number("target", target, 0, 1)
    check_type(
        "anchors",
        anchors,
        (Mapping, type(None)),
        "a mapping from a prompt's id to its two rates, or None",
    )
    for name, pair in (anchors or {}).items():
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise InputError(
                f"anchors[{name!r}]={shown(pair)}: give the rates of both models, such as (0.1, "
                "0.6)."
            )
        for each in pair:
            check_number(f"anchors[{name!r}]", each, 0, 1)
    farthest = max(target, 1 - target)

    def features(ids_P: Sequence[Id]) -> FloatArray:
        """f0 and f1 of each prompt, NaN if unknown, shape (P, 2)."""
        return np.array(
            [(anchors or {}).get(x, (math.nan, math.nan)) for x in ids_P], dtype=np.float64
        ).reshape(-1, 2)

    def believed(
        ids_P: Sequence[Id], recall: Mapping[str, FloatArray], numbers: Mapping[str, float]
    ) -> Beta:
        """The beliefs after the last visit, faded, plus the implicit evidence since."""
        now = int(numbers["steps"])
        gap_P = now - recall["after"]
        kept_P = (1 - rate) ** gap_P
        alpha_P, beta_P = (1 + kept_P * (recall[name] - 1) for name in ("alpha", "beta"))
        steps = np.arange(max(now - _WINDOW, 0), now)
        steps = steps[steps >= numbers["first"]]
        if numbers["first"] >= 0 and weight and len(steps):
            implied_PS = implicit(
                features(ids_P), np.array([numbers[name_of(t)] for t in steps.tolist()])
            )
            since_PS = steps >= recall["after"][:, None]
            faded_PS = np.where(
                since_PS & ~np.isnan(implied_PS),
                weight * group * (1 - rate) ** (now - 1 - steps),
                0.0,
            )
            alpha_P = alpha_P + (faded_PS * np.nan_to_num(implied_PS)).sum(axis=1)
            beta_P = beta_P + (faded_PS * (1 - np.nan_to_num(implied_PS))).sum(axis=1)
        return Beta(alpha_P, beta_P)

    def learn(memory: Memory, visit: Visit) -> None:
        numbers, step = memory.numbers, visit.step
        recall = {name: column[visit.at_V] for name, column in memory.columns.items()}
        before = believed(visit.ids_V, recall, numbers)
        memory.columns["alpha"][visit.at_V] = (1 - rate) * before.alpha_P + rate + visit.successes_V
        memory.columns["beta"][visit.at_V] = (
            (1 - rate) * before.beta_P + rate + visit.scored_V - visit.successes_V
        )
        memory.columns["after"][visit.at_V] = step + 1
        anchors_V2 = features(visit.ids_V)
        known_V = ~np.isnan(anchors_V2[:, 0])
        if known_V.any():
            low, high = anchors_V2[known_V].mean(axis=0)
            shown_now = (visit.mean_V[known_V].mean() - low) / (high - low + 1e-6)
            kept = _KEPT if numbers["first"] >= 0 else 0.0
            numbers[name_of(step)] = float(
                kept * numbers[name_of(step - 1)] + (1 - kept) * shown_now
            )
            numbers["first"] = step if numbers["first"] < 0 else numbers["first"]
        else:
            numbers[name_of(step)] = numbers[name_of(step - 1)]
        numbers["steps"] = float(step + 1)

    def rescale(memory: Memory, scale: float, shift: float) -> None:  # Beta(1, 1) stays
        columns = memory.columns
        evidence = columns["alpha"] - 1, columns["beta"] - 1
        successes, failures, _ = rescaled(*evidence, np.zeros_like(evidence[0]), scale, shift)
        columns["alpha"], columns["beta"] = 1 + successes, 1 + failures

    def decide(view: View) -> IntArray:
        drawn_P = believed(view.ids_P, view.recall, view.numbers).sample(view.rng).mean
        return ranked(farthest**2 - (drawn_P - target) ** 2 + 1e-12, group, view)

    given = "given" if anchors else None
    settings = f"group={group}, rate={rate}, weight={weight}, anchors={given}, target={target}"
    ring = [name_of(t) for t in range(_WINDOW)]
    # first: the first step with an anchor
    numbers = {"steps": 0.0, "first": -1.0, **dict.fromkeys(ring, 0.0)}
    lowest = dict.fromkeys(ring, -math.inf)
    memory = Memory(
        {"alpha": 1.0, "beta": 1.0, "after": 0.0}, learn, numbers, lowest=lowest, rescale=rescale
    )
    # for metrics, without the anchors
    estimator = BetaEstimator(prior=(1.0, 1.0), discount=1 - rate, idle=1 - rate)
    needs = Needs(candidates="all", baseline="group")
    return Policy(f"bots({settings}, seed={seed})", decide, estimator, seed, needs, memory=memory)

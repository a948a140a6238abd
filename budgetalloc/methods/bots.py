"""BOTS: beliefs that learn from visits and, between visits, from how capable the model has
become."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.memory import Memory
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_number, check_type, short_repr
from budgetalloc.methods.rules import ranked
from budgetalloc.methods.table import Count, Inside, Share, method, policy
from budgetalloc.policies import Policy, View

_WINDOW = 64  # steps of implicit evidence; with lambda = 0.2, older evidence weighs less than 1e-6
_KEPT = 0.9  # share of the capability kept at a step


def _capability(step: int) -> str:
    return f"capability {step % _WINDOW}"


@method("which prompts", "released code", of_rates=True)
def bots(
    *,
    group: Count = 8,
    rate: Inside = 0.2,
    weight: Share = 0.2,
    anchors: Mapping[Id, Sequence[float]] | None = None,
    target: Share = 0.5,
    seed: int = 0,
) -> Policy:
    """Chooses the prompts whose drawn success rate is nearest to a target. With anchors, the
    progress of the model also updates the beliefs about prompts that are not visited.

    Formula: a group each to the draws nearest to 1/2, alpha <- 0.8 alpha + 0.2 + successes;
    unvisited, + 0.2 m p~.

    Source: BOTS (arXiv 2510.26374). Compared with the released code, without its option to halve
    the weight after bad predictions. Evidence older than 64 steps is left out.

    p~ is the success that the model's capability implies, which needs `anchors`, the rates of two
    models. Graded success enters through its mean. p~ = clip(f0 + (f1 - f0) c, 0, 1), with c a
    running mean, with 0.9, of (mean pass rate - mean f0) / (mean f1 - mean f0) over a step's
    prompts. m is `group`.

    Args:
        rate, weight: lambda, the share of a belief that fades at a step; rho, of implied evidence.
        anchors: The success rates (f0, f1) of a weaker and a stronger model, by prompt.
        target: Preferred success rate.

    >>> from budgetalloc import Budget
    >>> policy = bots(anchors={"like it": (0.0, 1.0), "harder": (0.0, 0.1)}, seed=0)
    >>> policy.observe(["like it"] * 80, [0, 1] * 40)
    >>> policy.allocate(["like it", "harder"], Budget(rollouts=8, floor=0))
    array([8, 0])
    """
    known = {} if anchors is None else anchors
    check_type("anchors", known, Mapping, "a mapping from a prompt's id to its two rates, or None")
    for name, pair in known.items():
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise InputError(
                f"anchors[{name!r}]={short_repr(pair)}:",
                "give the rates of both models, as (0.1, 0.6).",
            )
        for each in pair:
            check_number(f"anchors[{name!r}]", each, 0, 1)

    def anchors_of(ids_P: Sequence[Id]) -> FloatArray:
        """f0 and f1 of each prompt, NaN if unknown, shape (P, 2)."""
        pairs = [known.get(x, (math.nan, math.nan)) for x in ids_P]
        return np.array(pairs, dtype=np.float64).reshape(-1, 2)

    def believed(
        ids_P: Sequence[Id], recall: Mapping[str, FloatArray], numbers: Mapping[str, float]
    ) -> Beta:
        """The beliefs after the last visit, faded, plus the implicit evidence since."""
        now = int(numbers["steps"])
        kept_P = (1 - rate) ** (now - recall["after"])
        alpha_P, beta_P = (1 + kept_P * (recall[name] - 1) for name in ("alpha", "beta"))
        steps = np.arange(max(now - _WINDOW, 0), now)
        steps = steps[steps >= numbers["first"]]
        if numbers["first"] >= 0 and weight and len(steps):
            f_P2 = anchors_of(ids_P)
            capability_S = np.array([numbers[_capability(t)] for t in steps.tolist()])
            implied_PS = np.clip(f_P2[:, :1] + np.diff(f_P2, axis=1) * capability_S, 0.0, 1.0)
            counts_PS = (steps >= recall["after"][:, None]) & ~np.isnan(implied_PS)
            faded_S = weight * group * (1 - rate) ** (now - 1 - steps)
            faded_PS = np.where(counts_PS, faded_S, 0.0)
            alpha_P = alpha_P + (faded_PS * np.nan_to_num(implied_PS)).sum(axis=1)
            beta_P = beta_P + (faded_PS * (1 - np.nan_to_num(implied_PS))).sum(axis=1)
        return Beta(alpha_P, beta_P)

    def learn(memory: Memory, seen: ByPrompt) -> None:
        numbers, columns, step = memory.numbers, memory.columns, memory.step
        at_P = memory.rows(seen.ids_P)
        before = believed(seen.ids_P, {x: c[at_P] for x, c in columns.items()}, numbers)
        failures_P = seen.n_P - seen.successes_P
        columns["alpha"][at_P] = (1 - rate) * before.alpha_P + rate + seen.successes_P
        columns["beta"][at_P] = (1 - rate) * before.beta_P + rate + failures_P
        columns["after"][at_P] = step + 1
        capability, f_P2 = numbers[_capability(step - 1)], anchors_of(seen.ids_P)
        known_P = ~np.isnan(f_P2[:, 0])
        if known_P.any():
            low, high = f_P2[known_P].mean(axis=0)
            new = (seen.mean_P[known_P].mean() - low) / (high - low + 1e-6)
            kept = _KEPT if numbers["first"] >= 0 else 0.0
            capability = float(kept * capability + (1 - kept) * new)
            numbers["first"] = step if numbers["first"] < 0 else numbers["first"]
        numbers[_capability(step)] = capability
        numbers["steps"] = float(step + 1)

    def decide(view: View) -> IntArray:
        drawn_P = believed(view.ids_P, view.recall, view.numbers).sample(view.rng).mean
        nearness_P = max(target, 1 - target) ** 2 - (drawn_P - target) ** 2
        return ranked(nearness_P + 1e-12, group, view)

    ring = [_capability(t) for t in range(_WINDOW)]
    memory = Memory(
        {"alpha": 1.0, "beta": 1.0, "after": 0.0},
        learn,
        {"steps": 0.0, "first": -1.0, **dict.fromkeys(ring, 0.0)},  # first: step with an anchor
        lowest=dict.fromkeys(ring, -math.inf),
    )
    # the beliefs are for metrics, without the anchors
    fades = {"discount": 1 - rate, "idle": 1 - rate}
    return policy(decide, prior=(1.0, 1.0), **fades, memory=memory, candidates="all")

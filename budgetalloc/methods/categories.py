"""DUMP and SEC: bandits that choose the category (domain, level) of the next prompts."""

from collections.abc import Callable, Hashable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.beliefs.memory import Memory, Rescale, Visit
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import (
    InputError,
    check_array,
    check_function,
    check_integer,
    check_number,
    shown,
)
from budgetalloc.methods.mean_advantage import mean_advantage
from budgetalloc.policies.interface import Needs, View
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.ranking import falling, ranked

__all__ = [
    "CategoryOf",
    "add_to_window",
    "by_category",
    "draw_order",
    "dump",
    "sec",
    "upper_bounds",
]

CategoryOf = Callable[[Id], Hashable]
_Order = Callable[[View, list[Id], IntArray], IntArray]
"""From a view, the names of its categories and the category of each prompt, to the prompts in an
order."""


def upper_bounds(gain_C: ArrayLike, rollouts_C: ArrayLike, total: float) -> FloatArray:
    """DUMP's score of each category: gain + sqrt(2 ln(total + 1) / (rollouts + 1)).

    >>> upper_bounds([0.5, 0.0], [9, 0], 9).round(4)  # 0.5 + sqrt(2 ln 10 / 10), sqrt(2 ln 10)
    array([1.1786, 2.146 ])
    """
    rollouts = check_array("rollouts_C", rollouts_C, "the rollouts of each category")
    gain = check_array("gain_C", gain_C, "the gain of each category")
    if gain.shape != rollouts.shape or not (rollouts >= 0).all():
        raise InputError(
            f"rollouts_C={shown(rollouts_C)}: give a number of at least 0 for each of {gain.shape} "
            "gains."
        )
    check_number("total", total, 0, np.inf)
    return np.asarray(gain + np.sqrt(2.0 * np.log1p(total) / (rollouts + 1.0)))


def draw_order(logits_C: ArrayLike, category_P: IntArray, rng: np.random.Generator) -> IntArray:
    """The prompts in the order of draws: each draw takes a category by softmax of the logits, then
    its next prompt.

    A category without prompts left is not drawn again. One call of `rng` suffices: each category is
    a Poisson process with its weight as the rate, and the arrivals are merged.

    >>> order = draw_order([0.0, -50.0], np.array([1, 0, 1, 0]), np.random.default_rng(0))
    >>> order.tolist()  # category 0 almost surely comes first
    [1, 3, 0, 2]
    """
    logits = np.asarray(logits_C, dtype=np.float64)
    by_category = np.argsort(category_P, kind="stable")
    sizes_C = np.bincount(category_P, minlength=logits.size)
    waits = np.cumsum(rng.exponential(size=len(category_P))[by_category])
    before_C = np.concatenate([[0.0], waits])[np.cumsum(sizes_C) - sizes_C]
    arrived = waits - np.repeat(before_C, sizes_C)
    # Compared as logarithms: weights may be too far apart for the exponential function.
    times = np.log(np.maximum(arrived, 1e-300)) - np.repeat(logits, sizes_C)
    return np.asarray(by_category[np.argsort(times, kind="stable")])


def dump(
    *,
    domain_of: CategoryOf,
    window: int = 300,
    temperature: float = 0.1,
    group: int = 8,
    seed: int = 0,
) -> Policy:
    """Categories by the softmax of an upper confidence bound on their mean |advantage| (DUMP, arXiv
    2504.09710).

    A category's score is its mean |advantage| (`mean_advantage`) over its last `window` rollouts
    plus sqrt(2 ln(n + 1) / (n_c + 1)), with n_c of n rollouts so far. Each prompt's category is
    drawn with probability proportional to exp(score / temperature), then a prompt of it at random,
    without replacement within a step. If the window ends within a step, the category's rollouts of
    that step count in proportion.

    `window` and `temperature` are the released code's. That code draws with replacement, and a
    whole pass of its loader with the weights at the start of the pass; here the weights are
    recomputed at each step.

    Args:
        domain_of: The category of a prompt; the same on every process and after a resume.
            Categories with the same `str` are one.
        window: Rollouts over which a category's gain is averaged, at least 1.
        temperature: Positive; large values draw categories uniformly.
        group: Rollouts of a chosen prompt, at least 1; our default.
        seed: Seeds the draws.

    >>> from budgetalloc import Budget
    >>> policy = dump(domain_of=lambda prompt: prompt[0], seed=0)
    >>> for _ in range(50):
    ...     policy.observe(["a1"] * 8 + ["b1"] * 8, [1] * 8 + [0, 1] * 4)  # "a" is solved
    >>> policy.allocate(["a1", "a2", "b1", "b2"], Budget(rollouts=16, floor=0))
    array([0, 0, 8, 8])
    """
    check_integer("window", window, 1)

    def learn(memory: Memory, visit: Visit) -> None:
        for category, (gain, rollouts) in _category_gains(domain_of, visit).items():
            numbers = memory.numbers
            add_to_window(numbers, category, gain, rollouts, window)
            numbers[f"n:{category}"] = numbers.get(f"n:{category}", 0.0) + rollouts
            numbers["n"] = numbers.get("n", 0.0) + rollouts

    def score(numbers: Mapping[str, float], names: list[Id]) -> FloatArray:
        gain_C, rollouts_C = (
            np.array([numbers.get(f"{key}:{c}", 0.0) for c in names]) for key in ("q", "n")
        )
        return upper_bounds(gain_C, rollouts_C, numbers.get("n", 0.0))

    settings, order = f"window={window}, temperature={temperature}", _by_softmax(score, temperature)
    return by_category("dump", domain_of, settings, group, learn, order, seed)


def sec(
    *,
    domain_of: CategoryOf,
    rate: float = 0.5,
    temperature: float = 0.4,
    group: int = 8,
    seed: int = 0,
) -> Policy:
    """Categories by the softmax of a running mean of their |advantage| (Self-Evolving Curriculum,
    arXiv 2505.14970).

    After a step, each category that was rolled out has Q <- rate * r + (1 - rate) * Q, with r the
    mean |advantage| (`mean_advantage`) of its rollouts; Q starts at 0. Each prompt's category is
    drawn with probability proportional to exp(Q / temperature), then a prompt of it at random,
    without replacement within a step. The commands in a public copy of the code have rate 0.5
    throughout, and temperature 1.0 on Countdown, 0.4 on mathematics and 0.2 on puzzles with two
    kinds of category.

    Args:
        rate: alpha, in (0, 1].
        temperature: tau, positive; large values draw categories uniformly.
        domain_of, group, seed: As in `dump`.

    >>> policy = sec(domain_of=lambda prompt: prompt[0])
    >>> for _ in range(2):
    ...     policy.observe(["a1"] * 8 + ["b1"] * 8, [1] * 8 + [0, 1] * 4)
    >>> policy.memory.numbers
    {'q:a': 0.0, 'q:b': 0.75}
    """
    check_number("rate", rate, 0, 1, without=(0,))

    def learn(memory: Memory, visit: Visit) -> None:
        for category, (gain, _) in _category_gains(domain_of, visit).items():
            before = memory.numbers.get(f"q:{category}", 0.0)
            memory.numbers[f"q:{category}"] = rate * gain + (1 - rate) * before

    def score(numbers: Mapping[str, float], names: list[Id]) -> FloatArray:
        return np.array([numbers.get(f"q:{c}", 0.0) for c in names])

    settings, order = f"rate={rate}, temperature={temperature}", _by_softmax(score, temperature)
    return by_category("sec", domain_of, settings, group, learn, order, seed)


def _category_gains(domain_of: CategoryOf, visit: Visit) -> dict[str, tuple[float, float]]:
    """The mean |advantage| of each category's rollouts in a step's visit, and their number."""
    sums: dict[str, tuple[float, float]] = {}
    total_V = mean_advantage(visit.rewards_R, visit.group_R, len(visit.ids_V)) * visit.scored_V
    for x, total, rollouts in zip(
        visit.ids_V, total_V.tolist(), visit.scored_V.tolist(), strict=True
    ):
        category = str(domain_of(x))
        before = sums.get(category, (0.0, 0.0))
        sums[category] = (before[0] + total, before[1] + rollouts)
    return {category: (total / rollouts, rollouts) for category, (total, rollouts) in sums.items()}


def add_to_window(
    numbers: dict[str, float], category: str, gain: float, rollouts: float, window: int
) -> None:
    """Adds a step to a category's window, drops steps that left it, and writes the window's mean to
    `q:category`."""
    newest = int(numbers.get(f"steps:{category}", 0)) + 1
    numbers[f"steps:{category}"] = newest
    numbers[f"gain:{category}:{newest}"], numbers[f"size:{category}:{newest}"] = gain, rollouts
    total, left, at = 0.0, float(window), newest
    while f"size:{category}:{at}" in numbers:
        taken = min(numbers[f"size:{category}:{at}"], left)
        total, left = total + taken * numbers[f"gain:{category}:{at}"], left - taken
        if not taken:
            del numbers[f"gain:{category}:{at}"], numbers[f"size:{category}:{at}"]
        at -= 1
    numbers[f"q:{category}"] = total / (window - left)


def _by_softmax(
    score: Callable[[Mapping[str, float], list[Id]], FloatArray], temperature: float
) -> _Order:
    check_number("temperature", temperature, 0, np.inf, without=(0,))
    return lambda view, names, category_P: draw_order(
        score(view.numbers, names) / temperature, category_P, view.rng
    )


def by_category(
    method: str,
    domain_of: CategoryOf,
    settings: str,
    group: int,
    learn: Callable[[Memory, Visit], None],
    order: _Order,
    seed: int,
    rescale: Rescale | None = None,
) -> Policy:
    """The policy that gives a group each to the first prompts of an order by their categories."""
    check_function("domain_of", domain_of, "from a prompt's id to its category")
    check_integer("group", group, 1)

    def decide(view: View) -> IntArray:
        names, category_P = factorize([str(domain_of(x)) for x in view.ids_P])
        return ranked(falling(order(view, names, category_P)), group, view)

    named = getattr(domain_of, "__name__", type(domain_of).__name__)
    name = f"{method}(domain_of={named}, {settings}, group={group}, seed={seed})"
    needs, memory = Needs(candidates="all", baseline="group"), Memory({}, learn, rescale=rescale)
    return Policy(name, decide, BetaEstimator(), seed, needs, memory=memory)

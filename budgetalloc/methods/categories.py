"""DUMP and SEC: bandits that choose the category (domain, level) of the next prompts."""

from collections.abc import Callable, Hashable, Mapping
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.beliefs.memory import Memory
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.methods.rules import falling, mean_advantage, ranked
from budgetalloc.methods.table import AboveZero, Count, Positive, method, policy
from budgetalloc.policies import Policy, View

CategoryOf = Annotated[Callable[[Id], Hashable], "from a prompt's id to its category"]
_Order = Callable[[View, list[Id], IntArray], IntArray]
"""From a view, the names of its categories and the category of each prompt, to the prompts in an
order."""


def draw_order(logits_C: ArrayLike, category_P: IntArray, rng: np.random.Generator) -> IntArray:
    """The prompts in the order of draws: each draw takes a category by softmax of the logits, then
    its next prompt.

    A category without prompts left is not drawn again. One call of `rng` suffices: each category is
    a Poisson process with its weight as the rate, and the arrivals are merged.
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


@method("which prompts", "released code")
def dump(
    *,
    domain_of: CategoryOf,
    window: Count = 300,
    temperature: Positive = 0.1,
    group: Count = 8,
    seed: int = 0,
) -> Policy:
    """Draws prompts from the categories whose latest rollouts had the largest advantages, with a
    bonus for categories drawn rarely. It is meant for datasets with several domains or levels.

    Formula: category by softmax((mean |A| of its window + sqrt(2 ln(n + 1) / (n_c + 1))) /
    temperature).

    Source: DUMP (arXiv 2504.09710). Compared with the released code, which draws with replacement,
    a whole pass of its loader at once. Here a prompt of the category is drawn without replacement
    within a step.

    Needs `domain_of`. Categories without signal are drawn less and less often, never with
    probability 0.

    Args:
        domain_of: The category of a prompt; the same on every process and after a resume.
            Categories with the same `str` are one.
        window: Rollouts over which a category's gain is averaged.

    >>> from budgetalloc import Budget
    >>> policy = dump(domain_of=lambda prompt: prompt[0], seed=0)
    >>> for _ in range(50):
    ...     policy.observe(["a1"] * 8 + ["b1"] * 8, [1] * 8 + [0, 1] * 4)  # "a" is solved
    >>> policy.allocate(["a1", "a2", "b1", "b2"], Budget(rollouts=16, floor=0))
    array([0, 0, 8, 8])
    """

    def learn(memory: Memory, seen: ByPrompt) -> None:
        numbers = memory.numbers
        for category, (gain, rollouts) in category_gains(domain_of, seen).items():
            _add_to_window(numbers, category, gain, rollouts, window)
            numbers[f"n:{category}"] = numbers.get(f"n:{category}", 0.0) + rollouts
            numbers["n"] = numbers.get("n", 0.0) + rollouts

    def score(numbers: Mapping[str, float], names: list[Id]) -> FloatArray:
        gain_C, rollouts_C = (_by_name(numbers, key, names) for key in ("q", "n"))
        wider_C = np.sqrt(2.0 * np.log1p(numbers.get("n", 0.0)) / (rollouts_C + 1.0))
        return np.asarray(gain_C + wider_C)

    return by_category(domain_of, group, learn, _by_softmax(score, temperature))


@method("which prompts", "paper's formulas")
def sec(
    *,
    domain_of: CategoryOf,
    rate: AboveZero = 0.5,
    temperature: Positive = 0.4,
    group: Count = 8,
    seed: int = 0,
) -> Policy:
    """Draws prompts from the categories with the largest advantages, by a moving average. It is
    meant for datasets with several domains or levels.

    Formula: category by softmax(Q / temperature), Q <- rate mean |A| + (1 - rate) Q.

    Source: SEC (arXiv 2505.14970). Compared with the paper's formulas. The commands in a public
    copy of the code have temperature 1.0 on Countdown, 0.4 on mathematics and 0.2 on puzzles.

    Needs `domain_of`.

    >>> policy = sec(domain_of=lambda prompt: prompt[0])
    >>> for _ in range(2):
    ...     policy.observe(["a1"] * 8 + ["b1"] * 8, [1] * 8 + [0, 1] * 4)
    >>> policy.memory.numbers
    {'q:a': 0.0, 'q:b': 0.75}
    """

    def learn(memory: Memory, seen: ByPrompt) -> None:
        for category, (gain, _) in category_gains(domain_of, seen).items():
            before = memory.numbers.get(f"q:{category}", 0.0)
            memory.numbers[f"q:{category}"] = rate * gain + (1 - rate) * before

    def score(numbers: Mapping[str, float], names: list[Id]) -> FloatArray:
        return _by_name(numbers, "q", names)

    return by_category(domain_of, group, learn, _by_softmax(score, temperature))


def category_gains(domain_of: CategoryOf, seen: ByPrompt) -> dict[str, tuple[float, float]]:
    """The mean |advantage| of each category's rollouts in a step's visit, and their number."""
    total_P = mean_advantage(seen.rewards_R, seen.prompt_R, len(seen.ids_P)) * seen.n_P
    names, category_P = factorize([str(domain_of(x)) for x in seen.ids_P])
    total_C, rollouts_C = (np.bincount(category_P, x_P) for x_P in (total_P, seen.n_P))
    means = zip((total_C / rollouts_C).tolist(), rollouts_C.tolist(), strict=True)
    return dict(zip(map(str, names), means, strict=True))


def _add_to_window(
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


def _by_name(numbers: Mapping[str, float], key: str, names: list[Id]) -> FloatArray:
    return np.array([numbers.get(f"{key}:{name}", 0.0) for name in names])


def _by_softmax(
    score: Callable[[Mapping[str, float], list[Id]], FloatArray], temperature: float
) -> _Order:
    return lambda view, names, category_P: draw_order(
        score(view.numbers, names) / temperature, category_P, view.rng
    )


def by_category(
    domain_of: CategoryOf, group: int, learn: Callable[[Memory, ByPrompt], None], order: _Order
) -> Policy:
    """The policy that gives a group each to the first prompts of an order by their categories."""

    def decide(view: View) -> IntArray:
        names, category_P = factorize([str(domain_of(x)) for x in view.ids_P])
        return ranked(falling(order(view, names, category_P)), group, view)

    return policy(decide, memory=Memory({}, learn), candidates="all")

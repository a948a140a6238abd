"""PAC: a bandit over categories whose utility is their |advantage|, raised where their reward
rises."""

from typing import Annotated

import numpy as np

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.memory import Memory
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.methods.categories import CategoryOf, by_category
from budgetalloc.methods.rules import mean_advantage
from budgetalloc.methods.table import Between, Count, Positive, method
from budgetalloc.policies import Policy, View

_FEWEST = 3  # steps that a slope is fitted through
_MOST_SLOTS = 4_096  # most prompts that are drawn one by one


def one_by_one(draws_SC: FloatArray, category_P: IntArray) -> IntArray:
    """The prompts in the order of slots: each slot takes the next prompt of its best category that
    has one left."""
    queues = [np.flatnonzero(category_P == c).tolist()[::-1] for c in range(draws_SC.shape[1])]
    left_C, order = np.array([bool(queue) for queue in queues]), []
    for draw_C in draws_SC:
        if not left_C.any():
            break
        best = int(np.argmax(np.where(left_C, draw_C, -np.inf)))
        order.append(queues[best].pop())
        left_C[best] = bool(queues[best])
    rest = np.setdiff1d(np.arange(len(category_P)), order)
    return np.concatenate([np.array(order, dtype=np.int64), rest])


@method("which prompts", "paper's formulas")
def pac(
    *,
    domain_of: CategoryOf,
    window: Count = 16,
    inflation: Positive = 0.02,
    cold: Annotated[int, Between(0)] = 50,
    group: Count = 8,
    seed: int = 0,
) -> Policy:
    """Draws prompts from the categories whose advantages are large and growing, by Thompson
    sampling. It is meant for datasets with several domains or levels.

    Formula: each prompt's category by the largest draw of N(mu, s2), of (1 + share of slopes) mean
    |A|.

    Source: PAC (arXiv 2608.30528, Algorithm 1). Compared with the paper's formulas. Slopes need 3
    steps, which is our reading.

    Needs `domain_of` (as in `dump`). The first 50 steps draw categories uniformly. Means and slopes
    are those of a category's last `window` steps. Its belief, from N(0, 1), takes the utility in
    with precision c N / B, for c of the step's B rollouts in one of N categories (eq. 10); s2 then
    grows by `inflation` (eq. 11).

    >>> policy = pac(domain_of=lambda prompt: prompt[0], cold=0)
    >>> policy.observe(["a1"] * 8 + ["b1"] * 8, [1] * 8 + [0, 1] * 4)
    >>> {x: round(n, 2) for x, n in policy.memory.numbers.items() if x[:2] in ("mu", "s2")}
    {'mu:a': 0.0, 's2:a': 0.52, 'mu:b': 0.5, 's2:b': 0.52}
    """

    def learn(memory: Memory, seen: ByPrompt) -> None:
        numbers, step = memory.numbers, memory.step
        names_P = np.array([str(domain_of(x)) for x in seen.ids_P], dtype=object)
        size_P = mean_advantage(seen.rewards_R, seen.prompt_R, len(names_P))
        share: dict[str, float] = {}
        for name in dict.fromkeys(names_P.tolist()):
            here_P = names_P == name
            scored = seen.n_P[here_P].sum()
            share[name] = float(scored / seen.n_P.sum())
            numbers[f"size:{name}:{step}"] = float(size_P[here_P].mean())
            numbers[f"mean:{name}:{step}"] = float(seen.successes_P[here_P].sum() / scored)
            numbers.setdefault(f"mu:{name}", 0.0)
            numbers.setdefault(f"s2:{name}", 1.0)
        names = [key[3:] for key in numbers if key.startswith("mu:")]
        steps = range(max(step - window + 1, 0), step + 1)
        size_C, slope_C = np.zeros((2, len(names)))
        for c, name in enumerate(names):
            for kind in ("size", "mean"):
                numbers.pop(f"{kind}:{name}:{step - window}", None)
            present = [t for t in steps if f"size:{name}:{t}" in numbers]
            if present:
                size_C[c] = np.mean([numbers[f"size:{name}:{t}"] for t in present])
            if len(present) >= _FEWEST:
                places = (np.array(present) - steps[0]) / max(len(steps) - 1, 1)
                means = np.array([numbers[f"mean:{name}:{t}"] for t in present])
                slope_C[c] = np.polyfit(places, means, 1)[0]
        utility_C = (1 + slope_C / (np.abs(slope_C).sum() + 1e-9)) * size_C
        for name, utility in zip(names, utility_C.tolist(), strict=True):
            before, precision = 1 / numbers[f"s2:{name}"], share.get(name, 0.0) * len(names)
            total = numbers[f"mu:{name}"] * before + precision * utility
            numbers[f"mu:{name}"] = total / (before + precision)
            numbers[f"s2:{name}"] = 1 / (before + precision) + inflation

    def order(view: View, names: list[Id], category_P: IntArray) -> IntArray:
        wanted = _MOST_SLOTS if view.budget.rollouts is None else view.budget.rollouts // group + 1
        shape = min(wanted, len(category_P), _MOST_SLOTS), len(names)
        if view.step < cold:
            return one_by_one(view.rng.random(shape), category_P)
        mean_C = np.array([view.numbers.get(f"mu:{name}", 0.0) for name in names])
        deviation_C = np.sqrt([view.numbers.get(f"s2:{name}", 1.0) for name in names])
        return one_by_one(mean_C + deviation_C * view.rng.normal(size=shape), category_P)

    return by_category(domain_of, group, learn, order)

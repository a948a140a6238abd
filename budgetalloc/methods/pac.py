"""PAC: a bandit over categories whose utility is their |advantage|, raised where their reward
rises."""

import math
from collections.abc import Mapping

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.memory import Memory, Visit
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import check_integer, check_number
from budgetalloc.methods.categories import CategoryOf, by_category
from budgetalloc.methods.mean_advantage import mean_advantage
from budgetalloc.policies.interface import View
from budgetalloc.policies.policy import Policy

__all__ = ["one_by_one", "pac", "slope", "utilities"]

_EPS = 1e-9
_FEWEST = 3  # steps that a slope is fitted through
_MOST_SLOTS = 4_096  # most prompts that are drawn one by one


def slope(means: FloatArray, places: FloatArray) -> float:
    """The least-squares slope of a category's mean rewards at these places, in [0, 1], of the
    window (PAC, eq. 6)."""
    return float(np.polyfit(places, means, 1)[0]) if len(means) >= _FEWEST else 0.0


def utilities(advantage_C: FloatArray, slope_C: FloatArray) -> FloatArray:
    """Mean |advantage| times 1 + slope / sum of |slopes|, shape (C,) (PAC, eqs. 7 and 8)."""
    return np.asarray((1 + slope_C / (np.abs(slope_C).sum() + _EPS)) * advantage_C)


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


def pac(
    *,
    domain_of: CategoryOf,
    window: int = 16,
    inflation: float = 0.02,
    cold: int = 50,
    group: int = 8,
    seed: int = 0,
) -> Policy:
    """Categories by Thompson draws of |advantage| times progress (PAC, arXiv 2608.30528, Algorithm
    1).

    After a step, each category's utility u is its mean |advantage| (`mean_advantage`) over the last
    `window` steps with rollouts of it, times 1 + s, where s is the slope of its mean reward over
    them as a share of all slopes (`utilities`). Its Gaussian belief N(mu, s2), from (0, 1), takes u
    in with precision c_i N / B, for c_i of the step's B rollouts in one of N categories (eq. 10);
    s2 then grows by `inflation` (eq. 11). For each prompt a category is drawn anew: the one of the
    largest draw from the beliefs, or uniformly in the first `cold` steps.

    Prompts are drawn without replacement within a step, where the paper does not say. Slopes need 3
    steps, our reading of its "too few". A category's first belief is that of its first rollouts.

    Args:
        domain_of: As in `dump`.
        window: W, steps, at least 1.
        inflation: delta^2, positive.
        cold: T_cold, at least 0.
        group: Rollouts of a chosen prompt, at least 1; the paper's.
        seed: Seeds the draws.

    >>> policy = pac(domain_of=lambda prompt: prompt[0], cold=0)
    >>> policy.observe(["a1"] * 8 + ["b1"] * 8, [1] * 8 + [0, 1] * 4)
    >>> {name: round(x, 2) for name, x in policy.memory.numbers.items() if name[:2] in ("mu", "s2")}
    {'mu:a': 0.0, 's2:a': 0.52, 'mu:b': 0.5, 's2:b': 0.52}
    """
    check_integer("window", window, 1)
    check_number("inflation", inflation, 0, math.inf, without=(0, math.inf))
    check_integer("cold", cold, 0)

    def learn(memory: Memory, visit: Visit) -> None:
        numbers, step = memory.numbers, visit.step
        share: dict[str, float] = {}
        if visit.ids_V:
            names_V = [str(domain_of(x)) for x in visit.ids_V]
            size_V = mean_advantage(visit.rewards_R, visit.group_R, len(names_V))
            for name in dict.fromkeys(names_V):
                here_V = np.array([x == name for x in names_V])
                share[name] = float(visit.scored_V[here_V].sum() / visit.scored_V.sum())
                numbers[f"size:{name}:{step}"] = float(size_V[here_V].mean())
                numbers[f"mean:{name}:{step}"] = float(
                    visit.successes_V[here_V].sum() / visit.scored_V[here_V].sum()
                )
                numbers.setdefault(f"mu:{name}", 0.0)
                numbers.setdefault(f"s2:{name}", 1.0)
        names = [key[3:] for key in numbers if key.startswith("mu:")]
        steps = range(max(step - window + 1, 0), step + 1)
        sizes, slopes = [], []
        for name in names:
            for kind in ("size", "mean"):
                numbers.pop(f"{kind}:{name}:{step - window}", None)
            seen_steps = [t for t in steps if f"size:{name}:{t}" in numbers]
            sizes.append(
                float(np.mean([numbers[f"size:{name}:{t}"] for t in seen_steps]))
                if seen_steps
                else 0.0
            )
            means = np.array([numbers[f"mean:{name}:{t}"] for t in seen_steps])
            slopes.append(slope(means, (np.array(seen_steps) - steps[0]) / max(len(steps) - 1, 1)))
        for name, utility in zip(
            names, utilities(np.array(sizes), np.array(slopes)).tolist(), strict=True
        ):
            precision = share.get(name, 0.0) * len(names)
            before = 1 / numbers[f"s2:{name}"]
            numbers[f"mu:{name}"] = (numbers[f"mu:{name}"] * before + precision * utility) / (
                before + precision
            )
            numbers[f"s2:{name}"] = 1 / (before + precision) + inflation

    # shares of slopes do not depend on the scale
    def rescale(memory: Memory, scale: float, shift: float) -> None:
        for key in [key for key in memory.numbers if key.startswith("mean:")]:
            memory.numbers[key] = min(max(scale * memory.numbers[key] + shift, 0.0), 1.0)

    def draw(numbers: Mapping[str, float], names: list[Id], slots: int, view: View) -> FloatArray:
        """Each slot's draw of each category's utility."""
        if view.step < cold:
            return view.rng.random((slots, len(names)))
        mean_C = np.array([numbers.get(f"mu:{name}", 0.0) for name in names])
        spread_C = np.sqrt([numbers.get(f"s2:{name}", 1.0) for name in names])
        return np.asarray(mean_C + spread_C * view.rng.normal(size=(slots, len(names))))

    def order(view: View, names: list[Id], category_P: IntArray) -> IntArray:
        wanted = _MOST_SLOTS if view.budget.rollouts is None else view.budget.rollouts // group + 1
        return one_by_one(
            draw(view.numbers, names, min(wanted, len(category_P), _MOST_SLOTS), view), category_P
        )

    settings = f"window={window}, inflation={inflation}, cold={cold}"
    return by_category("pac", domain_of, settings, group, learn, order, seed, rescale)

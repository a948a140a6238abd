"""Conformance checks for allocation policies, as plain functions that raise `AssertionError`."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id, Pool
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.state import load_state, save_state
from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import BudgetError, UnsupportedError
from budgetalloc.policies import Policy, Step

Build = Callable[..., Policy]
_FREE, _FLOOR = Budget(96, floor=0, min_group=2), Budget(96, floor=2, min_group=2)
IDS: list[Id] = [*range(12), *(f"prompt {k}" for k in range(12))]
# success rates: the first prompt never passes, the last always does
_RATES = np.linspace(0.0, 1.0, len(IDS))


def play(
    policy: Policy,
    ids_P: Sequence[Id],
    budget: Budget,
    rates_P: FloatArray,
    rng: np.random.Generator,
) -> IntArray:
    """Runs all rounds of a step, with rewards 0 or 1 drawn at these rates. Returns the rollouts,
    shape (P,).

    >>> import budgetalloc as ba
    >>> play(ba.uniform(), ["a", "b"], Budget(rollouts=8), np.array([0.0, 1.0]),
    ...     np.random.default_rng(0))
    array([4, 4])
    """
    return _play(
        policy.begin(ids_P, budget),
        lambda at_R: (rng.random(at_R.size) < rates_P[at_R]).astype(float),
    )


def _play(step: Step, reward: Callable[[IntArray], FloatArray]) -> IntArray:
    """Runs all rounds of a step. `reward` returns the rewards for rollouts of the prompts at these
    indices."""
    total_P = np.zeros(len(step.ids_P), dtype=np.int64)
    while (counts_P := step.request()).any():
        total_P += counts_P
        at_R = np.repeat(np.arange(len(step.ids_P)), counts_P)
        step.observe([step.ids_P[at] for at in at_R.tolist()], reward(at_R), hinted=step.hinted)
    step.end()
    return total_P


def trained(build: Build, seed: int = 0, steps: int = 8) -> Policy:
    """A policy with a short history of some of `IDS`. The last four stay cold.

    >>> import budgetalloc as ba
    >>> policy = trained(ba.knapsack)
    >>> policy.belief(IDS[::6]).mean.round(2), policy.cold(IDS[-4:])
    (array([0.1 , 0.29, 0.5 , 0.7 ]), array([ True,  True,  True,  True]))
    """
    policy, rng = build(seed=seed), np.random.default_rng([seed, 1])
    for _ in range(steps):
        at_V = rng.choice(len(IDS) - 4, 6, replace=False)
        play(policy, [IDS[at] for at in at_V.tolist()], Budget(rollouts=24), _RATES[at_V], rng)
    return policy


def budgets(count: int, seed: int = 0) -> list[tuple[Budget, int]]:
    """Random budgets, each with a number of prompts that can spend it."""
    rng = np.random.default_rng(seed)
    kinds: list[tuple[Budget, int]] = []
    while len(kinds) < count:
        quantum, floor = int(rng.integers(1, 4)), int(rng.integers(4))
        prompts = int(rng.integers(1, 14))
        cap = None if rng.random() < 0.3 else int(rng.integers(1, 25))
        smallest = int(rng.integers(1, 5)) if floor == 0 else int(rng.integers(1, floor + 1))
        try:
            rollouts = quantum * int(rng.integers(1, 61))
            budget = Budget(rollouts, floor=floor, cap=cap, quantum=quantum, min_group=smallest)
            budget.check(prompts)
        except BudgetError:
            continue
        kinds.append((budget, prompts))
    return kinds


def _budget(step: int) -> Budget:
    return Budget(64, floor=0 if step % 2 else 2, min_group=2)


def _check_same(wanted_P: IntArray, got_P: IntArray, who: str) -> None:
    assert (wanted_P == got_P).all(), f"{who} gave {got_P}, not {wanted_P}"


def _check_spent(policy: Policy, budget: Budget, counts_P: IntArray, about: str) -> None:
    spent, limit = int(counts_P.sum()), int(budget.rollouts or 0)
    least = limit if policy.needs.generate == 1 else -(-limit // policy.needs.generate)
    assert least <= spent <= limit, f"{policy}: {spent} rollouts of {budget} ({about}), {counts_P}"
    assert np.isin(counts_P, budget.grid()).all(), (
        f"{policy}: counts outside the grid of {budget} ({about}): {counts_P}"
    )


def spends_exactly(build: Build) -> None:
    """The budget is spent exactly, in allowed group sizes. With `needs.generate`, it is an upper
    limit."""
    for at, (budget, prompts) in enumerate(budgets(120)):
        policy, rng = trained(build, seed=at % 5, steps=3), np.random.default_rng(at)
        at_P = rng.choice(len(IDS), prompts, replace=False)
        counts_P = play(policy, [IDS[k] for k in at_P.tolist()], budget, _RATES[at_P], rng)
        _check_spent(policy, budget, counts_P, f"budget {at}")


def serves_every_history(build: Build) -> None:
    """Budgets are spent for cold, solved, hopeless, half-solved, graded and unscored prompts, alone
    and together."""
    histories = {"cold": None, "half": 0.5, "never": 0.0, "always": 1.0, "unscored": np.nan}
    for name, rate in [*histories.items(), ("mixed", None), ("graded", None)]:
        for budget in (
            Budget(64, floor=2, min_group=2),
            Budget(16, floor=0, min_group=2),
            Budget(64, floor=0, cap=6, min_group=2),
            Budget(48, cap=3, floor=2, min_group=2),
        ):
            policy, rng = build(seed=0), np.random.default_rng(0)
            rates_P = np.full(16, 0.5 if rate is None or np.isnan(rate) else rate)
            if name == "mixed":
                rates_P = np.tile([0.0, 0.5, 1.0, 0.25], 4)
            for _ in range(0 if name == "cold" else 3):
                ids_R, rate_R = np.repeat(np.arange(16), 8).tolist(), np.repeat(rates_P, 8)
                rewards_R = (rng.random(128) < rate_R).astype(float)
                if name == "graded":
                    rewards_R = rng.random(128)
                if name == "unscored":
                    rewards_R[:] = np.nan
                policy.observe(ids_R, rewards_R)
            _check_spent(policy, budget, play(policy, list(range(16)), budget, rates_P, rng), name)


def decides_the_same_again(build: Build) -> None:
    """Equal seeds and histories give equal counts, and a decision does not change the state."""
    for seed in range(3):
        one, other = trained(build, seed), trained(build, seed)
        for budget in (_FREE, _FLOOR):
            before = one.state_dict()
            first_P, again_P = (one.begin(IDS, budget).request() for _ in range(2))
            _check_same(first_P, again_P, f"{one}: a second request of the same step")
            assert same_state(before, one.state_dict()), f"{one}: a request changed its state"
            other_P = other.begin(IDS, budget).request()
            _check_same(first_P, other_P, f"{one}: with the same seed and history, another")


def does_not_depend_on_order(build: Build) -> None:
    """The count of each prompt does not depend on the order of the ids, in any round."""
    for seed in range(3):
        order_P = np.random.default_rng(seed).permutation(len(IDS))
        shuffled = [IDS[at] for at in order_P.tolist()]
        for budget in (_FREE, _FLOOR):
            steps = (
                trained(build, seed).begin(IDS, budget),
                trained(build, seed).begin(shuffled, budget),
            )
            for at in range(100):
                counts_P, shuffled_P = (step.request() for step in steps)
                _check_same(counts_P[order_P], shuffled_P, f"{steps[0].policy}: the other order")
                if not counts_P.any():
                    break
                ids_R = [x for x, n in zip(IDS, counts_P.tolist(), strict=True) for _ in range(n)]
                rewards_R = (np.random.default_rng(at).random(len(ids_R)) < 0.4).astype(float)
                for step in steps:
                    step.observe(ids_R, rewards_R, hinted=step.hinted)


def goes_on_from_its_state(build: Build) -> None:
    """A policy restored from a file decides and learns like the original."""
    kept = trained(build, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        save_state(Path(folder) / "state.npz", kept.state_dict())
        state, _ = load_state(Path(folder) / "state.npz")
    restored = build(seed=1)
    restored.load_state_dict(state)
    for at in range(6):
        counts_P, restored_P = (
            play(policy, IDS, _budget(at), _RATES, np.random.default_rng(at))
            for policy in (kept, restored)
        )
        _check_same(counts_P, restored_P, f"{kept}: the restored policy")
    assert same_state(kept.state_dict(), restored.state_dict()), f"{kept}: another restored state"


def decides_the_same_over_a_pool(build: Build) -> None:
    """A `Pool` gives the same counts, beliefs and state as lists of its ids, to the bit."""
    pool, (listed, pooled) = Pool(IDS), (trained(build, steps=4) for _ in range(2))
    for at in range(10):
        start, budget = at % 3, _budget(at)
        ids_P, part = IDS[start:], pool[start:]
        rewards = (_rewards(at, _RATES[start:], np.random.default_rng(at)) for _ in range(2))
        counts_P = _play(listed.begin(ids_P, budget), next(rewards))
        over_pool_P = _play(pooled.begin(part, budget), next(rewards))
        _check_same(counts_P, over_pool_P, f"{listed}: a pool")
        one, other = (vars(policy.belief(ids)) for policy, ids in ((listed, ids_P), (pooled, part)))
        assert same_state(one, other), f"{listed}: other beliefs about a pool"
        assert (listed.cold(ids_P) == pooled.cold(part)).all(), f"{listed}: other cold prompts"
    assert same_state(listed.state_dict(), pooled.state_dict()), f"{listed}: another state"


def keeps_to_tokens_or_says_so(build: Build) -> None:
    """A budget in tokens is never exceeded, or is refused with `UnsupportedError`."""
    costs_P = 10.0 * np.arange(1, len(IDS) + 1)
    for budget in (
        Budget(None, tokens=9000.0, floor=0, cap=16, min_group=2),
        Budget(None, tokens=9000.0, cap=16, floor=2, min_group=2),
    ):
        policy = trained(build)
        try:
            counts_P = _play(
                policy.begin(IDS, budget, costs_P), lambda at_R: (at_R % 2).astype(float)
            )
        except UnsupportedError:
            continue
        assert counts_P @ costs_P <= 9000, f"{policy}: {counts_P @ costs_P:g} tokens of {budget}"
        assert np.isin(counts_P, budget.grid()).all(), f"{policy}: {counts_P} for {budget}"


def survives(build: Build, steps: int = 500) -> None:
    """Random steps with varying budgets and prompts, changing rates, missing and graded rewards
    raise no error.

    Each of four policies runs a quarter of the steps.
    """
    rng, kinds = np.random.default_rng(0), budgets(steps, seed=1)
    for at, (budget, prompts) in enumerate(kinds):
        if at % -(-steps // 4) == 0:
            policy = build(seed=at)
        at_P = rng.choice(len(IDS), prompts, replace=False)
        reward = _rewards(at, np.roll(_RATES, at // 50)[at_P], rng)
        counts_P = _play(policy.begin([IDS[k] for k in at_P.tolist()], budget), reward)
        _check_spent(policy, budget, counts_P, f"step {at}")
        if at % 7 == 0:
            policy.observe([IDS[0], "a stranger"], [np.nan, rng.random()])
        if at % -(-steps // 8) == 0:
            belief = policy.belief(IDS)
            assert np.isfinite([belief.alpha_P, belief.beta_P]).all(), (
                f"{policy}: beliefs are no longer finite"
            )


def _rewards(
    kind: int, rates_P: FloatArray, rng: np.random.Generator
) -> Callable[[IntArray], FloatArray]:
    """Rewards at these rates. Of five kinds of steps, one has graded, one missing and one identical
    rewards."""

    def reward(at_R: IntArray) -> FloatArray:
        rewards_R = (rng.random(at_R.size) < rates_P[at_R]).astype(float)
        if kind % 5 == 0:
            rewards_R = rng.integers(0, 5, at_R.size) / 4 * rewards_R
        elif kind % 5 == 1:
            rewards_R[rng.random(at_R.size) < 0.3] = np.nan
        elif kind % 5 == 2:
            rewards_R[:] = (kind // 5) % 3 / 2
        return rewards_R

    return reward


def starves_no_prompt(build: Build, prompts: int = 40, steps: int = 1500) -> None:
    """With `floor=0`, every prompt gets rollouts in the last two thirds of a run, whatever its
    rate. Beliefs that fade (`idle`) see to that.

    >>> import budgetalloc as ba
    >>> starves_no_prompt(ba.knapsack, prompts=12, steps=90)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    AssertionError: knapsack(...): [0, 1, 11] got no rollouts in 60 steps
    >>> starves_no_prompt(lambda seed: ba.knapsack(idle=0.98, seed=seed), prompts=12, steps=90)
    """
    policy, rng = build(seed=0), np.random.default_rng(0)
    sampled_P, budget = np.zeros(prompts, np.int64), Budget(64, floor=0, cap=32, min_group=2)
    for at in range(steps):
        counts_P = play(policy, range(prompts), budget, np.linspace(0, 1, prompts), rng)
        if at >= steps // 3:
            sampled_P += counts_P > 0
        if sampled_P.all():
            break
    starved = np.flatnonzero(sampled_P == 0).tolist()
    assert not starved, f"{policy}: {starved} got no rollouts in {steps - steps // 3} steps"


def same_state(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two `state_dict()`s are equal to the bit.

    >>> import budgetalloc as ba
    >>> one, other = trained(ba.knapsack), trained(ba.knapsack, seed=1)
    >>> [same_state(one.state_dict(), policy.state_dict()) for policy in (one, other)]
    [True, False]
    """
    return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return same_state(one, other)
    if isinstance(one, np.ndarray) and one.dtype.kind == "f":
        return np.array_equal(one, other, equal_nan=True)
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else bool(one == other)


CHECKS: tuple[Callable[[Build], None], ...] = (
    spends_exactly,
    serves_every_history,
    decides_the_same_again,
    does_not_depend_on_order,
    goes_on_from_its_state,
    decides_the_same_over_a_pool,
    keeps_to_tokens_or_says_so,
    survives,
    starves_no_prompt,
)
"""All checks. `starves_no_prompt` does not apply to methods that drop prompts permanently by
design."""

"""Steps that tests of policies play, and histories that they start from."""

from itertools import product

import numpy as np

GROUPS = [(1, 7), (4, 4), (8, 0), (0, 8)]
"""Groups given as (successes, failures)."""


def play(policy, ids, budget, rates, seed=0):
    """One step against prompts of known rates: the counts of each round, shape (rounds, P), and each prompt's rewards.

    Args:
        seed: A seed or a generator of the rewards.
    """
    rng, step = np.random.default_rng(seed), policy.begin(ids, budget)
    counts, rewards = [], {x: [] for x in ids}
    while (counts_P := step.request()).any():
        ids_R = [x for x, n in zip(ids, counts_P.tolist(), strict=True) for _ in range(n)]
        rewards_R = (rng.random(len(ids_R)) < np.array([rates[x] for x in ids_R])).astype(float)
        for x, reward in zip(ids_R, rewards_R.tolist(), strict=True):
            rewards[x].append(reward)
        step.observe(ids_R, rewards_R)
        counts.append(counts_P)
    step.end()
    return np.array(counts).reshape(-1, len(ids)), rewards


def observe(policy, rates, group=8):
    """The policy after one step with the given mean reward of each prompt."""
    ids_R = [x for x in rates for _ in range(group)]
    policy.observe(ids_R, [float(k < round(r * group)) for r in rates.values() for k in range(group)])
    return policy


def visited(policy, rates, rollouts=16):
    """The policy after one visit to each prompt with a rate; prompts with None stay cold."""
    return observe(policy, {i: rate for i, rate in enumerate(rates) if rate is not None}, rollouts)


def visit(policy, **passed_of_8):
    """One step with a visit of 8 rollouts to each of these prompts."""
    observe(policy, {x: passed / 8 for x, passed in passed_of_8.items()})


def seen(policy, rates, rollouts=10):
    """The policy after one step for each prompt."""
    for i, rate in enumerate(rates):
        observe(policy, {i: rate}, rollouts)
    return policy


def believing(policy, evidence):
    """The policy after one step that left this evidence, as successes and failures of each prompt."""
    policy.observe(list(evidence), [0.0] * len(evidence))
    state = policy.state_dict()
    state["evidence"] = np.array([[*both, 0] for both in evidence.values()], dtype=float)
    policy.load_state_dict(state)
    return policy


def chosen(build, history, ids, budget, seeds=60):
    """The prompts that are rolled out, over many seeds of the same history."""
    met = set()
    for seed in range(seeds):
        policy = build(seed=seed)
        for ids_R, rewards_R in history:
            policy.observe(ids_R, rewards_R)
        counts_P = policy.allocate(ids, budget)
        assert counts_P.sum() == budget.rollouts
        met |= {x for x, n in zip(ids, counts_P.tolist(), strict=True) if n}
    return met


def splits(total, low, high, prompts):
    """All ways to give `total` rollouts to prompts, `low` to `high` each."""
    return (np.array(c) for c in product(range(low, high + 1), repeat=prompts) if sum(c) == total)


def rows_of(groups=GROUPS):
    """Ids and rewards of groups given as (successes, failures)."""
    ids = [at for at, n in enumerate(groups) for _ in range(sum(n))]
    return ids, np.array([x for wins, losses in groups for x in [1.0] * wins + [0.0] * losses])


def kept_of(policy, rows, groups=GROUPS):
    """The (successes, failures) kept of each group."""
    ids, rewards = rows_of(groups)
    kept = policy.keep(ids, rewards, rows, None)
    return [tuple(sum(ids[k] == at and rewards[k] == r for k in kept) for r in (1, 0)) for at in range(len(groups))]

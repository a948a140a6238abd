"""A training run in a world: the conversation with a policy, step by step, and what came of it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from budgetalloc.advantages import Baseline, Scale, Weight, group_advantages
from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.rewards import mixed_groups
from budgetalloc.budget import Budget
from budgetalloc.errors import InputError
from budgetalloc.offline.worlds import World
from budgetalloc.policies import Policy


def simulate(
    policy: Policy,
    world: World,
    budget: Budget | int,
    steps: int,
    *,
    prompts: int = 32,
    candidates: int | Literal["all"] | None = None,
    baseline: Baseline | None = None,
    scale: Scale | None = None,
    weight: Weight | None = None,
) -> Iterator[dict[str, Any]]:
    """Runs the policy in the world as `AdaptiveGRPOCallback` would in TRL's trainer; yields a dict after each step.

    A shuffled epoch hands out `prompts` different prompts a step. What is left out takes what `policy.needs` says, and
    TRL's own where that says nothing: the group's mean and standard deviation. The policy and the world change on the
    way; stop whenever you have seen enough.

    Args:
        policy: Decides and learns. Its `needs.generate` multiplies what a step may generate, all of it counted.
        world: Answers and learns.
        budget: The rollouts that a step trains on. An integer takes the bounds that the callback would: floor 2 with
            one candidate and 0 with more, a cap of 8 times `budget / prompts`. Or a `Budget` in rollouts.
        steps: Training steps, at least 1.
        prompts: Different prompts that the loader hands out at each step.
        candidates, baseline, scale, weight: As in `AdaptiveGRPOCallback`.

    Yields:
        `step` (from 1), `rollouts` generated so far, `success` of the world, and of this step alone: `reward` (mean),
        `prompts` asked, `rounds`, `mixed_groups` and `mixed_rollouts`, the shares of groups and of rollouts whose group
        has unequal rewards.

    Raises:
        InputError: an option out of range, a budget in tokens, or a policy that asks for nothing.

    >>> import budgetalloc as ba
    >>> run = list(simulate(ba.uniform(), ba.Learner(seed=0), 256, steps=20))
    >>> run[0]["rollouts"], run[0]["prompts"], run[-1]["rollouts"]
    (256, 32, 5120)
    >>> run[-1]["success"] > run[0]["success"]
    True
    """
    needs = policy.needs
    offer = needs.candidates if candidates is None else candidates
    if offer != "all" and (isinstance(offer, bool) or not isinstance(offer, int) or offer < 1):
        raise InputError(f"candidates={offer!r}: use 1, a larger integer or 'all'.")
    if steps < 1:
        raise InputError(f"steps={steps!r}: use at least 1, such as 150.")
    if not 1 <= prompts <= len(world.ids):
        raise InputError(f"prompts={prompts!r}: the world has {len(world.ids)} prompts, use 1 to {len(world.ids)}.")
    limit = _budget(budget, prompts, offer, needs.min_group)
    rows = int(limit.rollouts or 0)
    limit = replace(limit, rollouts=rows * needs.generate)
    estimate = baseline or needs.baseline or "group"
    loader = _loader(world.ids, prompts, policy.seed)
    rollouts = 0
    for at in range(1, steps + 1):
        ids_P = _offer(world.ids, next(loader), offer, policy.seed, at)
        step = policy.begin(ids_P, limit)
        rounds: list[NDArray[np.int64]] = []
        rewards: list[NDArray[np.float64]] = []
        while (counts_P := step.request()).any():
            rounds.append(np.repeat(np.arange(len(ids_P)), counts_P))
            ids_R = [ids_P[k] for k in rounds[-1].tolist()]
            rewards.append(world.rollout(ids_R))
            step.observe(ids_R, rewards[-1])
        if not rounds:
            raise InputError(f"{policy} asked for no rollout at step {at} of {limit}: its rule must spend something.")
        at_R, rewards_R = np.concatenate(rounds), np.concatenate(rewards)
        ids_R = [ids_P[k] for k in at_R.tolist()]
        belief_R = step.belief_P.take(at_R)
        step.end()
        advantages_R = group_advantages(
            rewards_R, ids_R, estimate, scale or needs.scale or "group", weight or needs.weight, belief_R=belief_R
        )
        if policy.keep is not None and len(ids_R) > rows:
            # Each row as often as it is kept; the factor makes the world's mean over all rows one over the kept.
            kept = policy.keep(ids_R, rewards_R, rows, None)
            advantages_R = advantages_R * np.bincount(kept, minlength=len(ids_R)) * len(ids_R) / len(kept)
        world.learn(advantages_R)
        rollouts += len(ids_R)
        yield {"step": at, "rollouts": rollouts, "success": world.success(), **_seen(at_R, rewards_R, len(rounds))}


def _budget(budget: Budget | int, prompts: int, offer: int | Literal["all"], min_group: int) -> Budget:
    if isinstance(budget, Budget):
        if budget.rollouts is None or budget.tokens is not None or budget.quotas is not None:
            raise InputError(f"budget={budget!r}: a world knows neither tokens nor domains. Use Budget(rollouts=...).")
        return budget
    floor, cap = 2 if offer == 1 else 0, max(8 * (budget // prompts), 2)
    return Budget(rollouts=budget, floor=floor, cap=cap, min_group=min_group)


def _loader(ids: list[Id], prompts: int, seed: int) -> Iterator[list[Id]]:
    """Batches of different prompts in shuffled epochs; what does not fill a batch is left out, as TRL does."""
    rng = np.random.default_rng([seed, 3])
    while True:
        order = rng.permutation(len(ids))
        for start in range(0, len(ids) - prompts + 1, prompts):
            yield [ids[k] for k in order[start : start + prompts].tolist()]


def _offer(ids: list[Id], own: list[Id], offer: int | Literal["all"], seed: int, step: int) -> list[Id]:
    """The prompts to choose among: the loader's, more drawn from the world, or all."""
    if offer == "all":
        return ids
    if offer == 1:
        return own
    taken = set(own)
    others = [x for x in ids if x not in taken]
    drawn = np.random.default_rng([seed, step, 2]).permutation(len(others))[: (offer - 1) * len(own)]
    return own + [others[k] for k in drawn.tolist()]


def _seen(at_R: NDArray[np.int64], rewards_R: NDArray[np.float64], rounds: int) -> dict[str, Any]:
    _, group_R = np.unique(at_R, return_inverse=True)
    size_G = np.bincount(group_R)
    mixed_G = mixed_groups(rewards_R, group_R, len(size_G))
    return {
        "reward": float(rewards_R.mean()),
        "prompts": len(size_G),
        "rounds": rounds,
        "mixed_groups": float(mixed_G.mean()),
        "mixed_rollouts": float(size_G[mixed_G].sum() / size_G.sum()),
    }

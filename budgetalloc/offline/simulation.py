"""A simulated training run: a policy decides step by step in a world, and each step is reported."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.ids import Id, Pool
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import EQUAL, as_rewards, mixed_groups
from budgetalloc.budget import Budget, rollouts_alone
from budgetalloc.contrib.mixture import Mixture, Rule
from budgetalloc.contrib.quotas import Shares
from budgetalloc.errors import InputError, check_function, check_integer, keywords, short_repr
from budgetalloc.offline.worlds import World
from budgetalloc.policies.group_advantages import Baseline, Scale, Weight
from budgetalloc.policies.interface import Bounds
from budgetalloc.training.policy_like import PolicyLike, resolve_policy
from budgetalloc.training.session import Session


@keywords
def simulate(
    policy: PolicyLike,
    world: World,
    budget: Budget | int,
    steps: int,
    *,
    prompts: int = 32,
    candidates: int | Literal["all"] | None = None,
    baseline: Baseline | None = None,
    scale: Scale | None = None,
    weight: Weight | None = None,
    reward: Callable[[FloatArray], ArrayLike] | None = None,
    domain: Mapping[Id, Hashable] | None = None,
    quotas: Shares | None = None,
    mixture: Rule | Mixture | None = None,
) -> Iterator[dict[str, Any]]:
    """Runs a policy in a world as `AdaptiveGRPOCallback` runs it in TRL's trainer; yields a dict
    after each step.

    A data loader returns `prompts` different prompts per step, in shuffled epochs. Default
    arguments are those of `policy.needs`, and otherwise TRL's own: the mean and the standard
    deviation of the group. The policy and the world change during the run. You may stop at any
    step.

    Args:
        policy: Decides and learns: a policy, the name of a method, or a function that builds a
            policy. A step generates `needs.generate` times the budget, and all of it is counted.
        world: Returns rewards and learns.
        budget: The rollouts that a step trains on. An integer has the bounds of the callback: a
            floor of 2 with one candidate and 0 with more, and a cap of 8 times `budget // prompts`
            (see `Bounds`). Or a `Budget` in rollouts; bounds that it does not name are the
            policy's.
        steps: Training steps, at least 1.
        prompts: Different prompts that the loader returns at each step.
        candidates, baseline, scale, weight: As in `AdaptiveGRPOCallback`.
        domain: The domain of each prompt of the world, for `quotas` and `mixture`; the budget is
            then an integer.
        quotas, mixture: As in `AdaptiveGRPOCallback`.
        reward: A function from success, which the world returns and the beliefs learn, to the
            rewards that advantages use, shape (R,) both: `lambda u: 0.2 + 0.8 * u` adds a point for
            the format. By default success is the reward.

    Yields:
        `step` (from 1), `rollouts` generated so far, `success` of the world in [0, 1], and of this
        step alone: `informative_prompts`, the different prompts with a nonzero advantage as a share
        of the rollouts generated; `reward` (mean), `prompts` that got rollouts, `rounds`,
        `mixed_groups` and `mixed_rollouts`, the shares of groups and of rollouts whose group has
        unequal rewards.
        With domains also the metrics of the session whose names begin with `share/` or `mixture/`.

    Raises:
        InputError: an option out of range, a budget in tokens, or a policy that requests no
            rollout.

    >>> import budgetalloc as ba
    >>> run = list(simulate(ba.uniform(), ba.Learner(seed=0), 256, steps=20))
    >>> run[0]["rollouts"], run[0]["prompts"], run[-1]["rollouts"]
    (256, 32, 5120)
    >>> run[-1]["success"] > run[0]["success"]
    True
    """
    policy = resolve_policy(policy)
    parts = ("ids", "rollout", "learn", "success")
    if isinstance(world, type) or not all(hasattr(world, name) for name in parts):
        raise InputError("world", "give a world, such as ba.Learner() or ba.Replay(ledger).", world)
    if reward is not None:
        check_function("reward", reward, "from the successes of rollouts to their rewards")
    names = ["reward"] if reward is None else ["reward", "success"]
    given: dict[str, Any] = {"success": "success"} if reward else {"reward_range": (0.0, 1.0)}
    session = Session(
        policy,
        names,
        quiet=True,
        trainer_scale="group",
        candidates=candidates,
        baseline=baseline,
        scale=scale,
        weight=weight,
        domain=domain,
        quotas=quotas,
        mixture=mixture,
        **given,
    )
    options = session.options
    if domain is not None and (set(domain) != set(world.ids) or isinstance(budget, Budget)):
        raise InputError(
            f"domain={short_repr(domain)} with budget={budget!r}: give the domain of each of the "
            f"{len(world.ids)} prompts of the world and no others, and the budget as a number of "
            "rollouts.",
            argument="domain",
        )
    check_integer("steps", steps, 1)
    check_integer("prompts", prompts, 1, len(world.ids))
    rows, limit = _limit(budget, options.bounds, prompts, len(world.ids), options.generate)
    pool, loader = Pool(world.ids), _loader(world.ids, prompts, policy.seed)
    rollouts = 0
    for at in range(1, steps + 1):
        if domain is not None:
            session.begin(next(loader), rows, max(1, rows // prompts))
        else:
            ids_P = options.bounds.offer(next(loader), pool, policy.seed, at)
            session.begin_among(ids_P, limit, rows, max(1, rows // prompts))
        rounds = 0
        while ids_R := session.request():
            success_R = world.rollout(ids_R)
            scores_RF = success_R
            if reward is not None:
                paid = reward(success_R.copy())
                rewards_R = as_rewards(paid, len(success_R), "reward(success_R)")
                scores_RF = np.stack([rewards_R, success_R], axis=1)
            # a world has no tokens: all have equal length
            session.observe(ids_R, scores_RF, np.ones(len(ids_R)))
            rounds += 1
        if not rounds:
            raise InputError(
                f"{policy} requested no rollout at step {at} with {limit}: its rule must request "
                "at least one."
            )
        ended = session.end()
        batch, kept_R, advantages_R = ended.batch, ended.kept_R, ended.advantages_R
        assert batch is not None
        if len(kept_R) < len(batch):
            # A row counts as often as it is kept. A trainer takes the mean over kept rows, the
            # world over all rows.
            times_R = np.bincount(kept_R, minlength=len(batch))
            advantages_R = advantages_R * times_R * len(batch) / len(kept_R)
        world.learn(advantages_R)
        rollouts += len(batch)
        size_G = batch.counts_G
        mixed_G = mixed_groups(batch.rewards_R, batch.group_R, len(size_G))
        shares = ("share/", "mixture/")
        yield {
            "step": at,
            "rollouts": rollouts,
            "success": world.success(),
            "informative_prompts": len(np.unique(batch.group_R[np.abs(advantages_R) > EQUAL]))
            / len(batch),
            "reward": float(batch.rewards_R.mean()),
            "prompts": len(size_G),
            "rounds": rounds,
            "mixed_groups": float(mixed_G.mean()),
            "mixed_rollouts": float(size_G[mixed_G].sum() / size_G.sum()),
            **{name: x for name, x in ended.metrics.items() if name.startswith(shares)},
        }


def _limit(
    budget: Budget | int, bounds: Bounds, prompts: int, pool: int, generate: int
) -> tuple[int, Budget]:
    """The rollouts that a step trains on, and the budget of what it may generate."""
    if isinstance(budget, Budget):
        if (rollouts := rollouts_alone(budget)) is None:
            raise InputError(
                "budget",
                "a world has neither token costs nor domains. Use Budget(rollouts=...).",
                budget,
            )
        return rollouts, replace(bounds.filled(budget), rollouts=rollouts * generate)
    rows = check_integer("budget", budget, 1)
    return rows, bounds.budget(rows * generate, bounds.on_offer(prompts, pool), rows // prompts)


def _loader(ids: list[Id], prompts: int, seed: int) -> Iterator[list[Id]]:
    """Batches of different prompts in shuffled epochs. A last batch that is not full is dropped, as
    in TRL."""
    rng = np.random.default_rng([seed, 3])
    while True:
        order = rng.permutation(len(ids))
        for start in range(0, len(ids) - prompts + 1, prompts):
            yield [ids[k] for k in order[start : start + prompts].tolist()]

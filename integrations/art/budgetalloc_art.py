"""For your loop with ART: import `gather` from this file, which must not be called art.py."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import art

import budgetalloc as ba


async def gather(
    policy: ba.Policy,
    scenarios: Mapping[str, Any],
    rollout: Callable[[Any], Awaitable[art.Trajectory]],
    budget: ba.Budget,
    **options: Any,
) -> list[art.TrajectoryGroup]:
    """Gathers the groups of one step for ART's `train`; the policy learns from their rewards.

    Args:
        policy: A policy whose baseline is the mean of each group, as ART's is.
        scenarios: The candidates by id. An id stays the same from run to run.
        rollout: Generates a trajectory with a reward in [0, 1].
        budget: The trajectories of the step.
        options: Arguments of `art.gather_trajectory_groups`, such as max_exceptions=8.
    """
    if policy.needs.baseline not in (None, "group"):
        raise ba.UnsupportedError(
            f"{policy} needs baseline={policy.needs.baseline!r}, and ART subtracts the mean of each group. Use a "
            "policy with that baseline, such as ba.thompson() or ba.knapsack()."
        )
    counts_P = policy.allocate(scenarios, budget)
    groups = await art.gather_trajectory_groups(
        [
            art.TrajectoryGroup((rollout(scenario) for _ in range(count)), metadata={"scenario_id": name})
            for (name, scenario), count in zip(scenarios.items(), counts_P, strict=True)
            if count
        ],
        **options,
    )
    made = [(group.metadata["scenario_id"], trajectory.reward) for group in groups for trajectory in group]
    policy.observe([name for name, _ in made], [reward for _, reward in made])
    return groups

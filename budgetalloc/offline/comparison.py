"""Compare policies on a log, over several seeds and in several processes."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from budgetalloc.budget import Budget, rollouts_alone
from budgetalloc.errors import (
    InputError,
    check_function,
    check_integer,
    check_list,
    check_seed,
    check_type,
    import_optional,
    keywords,
)
from budgetalloc.logs.ledger import Ledger
from budgetalloc.offline.intervals import interval
from budgetalloc.offline.parallel import Workers, check_workers, in_parallel
from budgetalloc.offline.replay import NO_HISTORY, Replay
from budgetalloc.offline.simulation import simulate
from budgetalloc.policies import Policy
from budgetalloc.policies.interface import Bounds
from budgetalloc.training.policy_like import PolicyLike, resolve_policy

if TYPE_CHECKING:
    import pandas as pd

_log = logging.getLogger(__name__)
Progress = Callable[[int, int], None]
_SHARES = ("informative_prompts", "reward", "mixed_rollouts", "signal", "drawn", "modelled")
FIGURES = (*_SHARES[:2], "mixed", *_SHARES[2:])
"""The figures that `compare` returns for each policy, with intervals and differences;
`informative_prompts`, the first, is the one to compare policies by
(`budgetalloc.report.replays.LIMITS`)."""


@keywords
def comparisons(
    policies: Mapping[str, PolicyLike],
    world: Replay | Ledger,
    budget: Budget | int,
    *,
    steps: int | None = None,
    seeds: Iterable[int] = range(5),
    prompts: int | None = None,
    workers: Workers = None,
    progress: Progress | None = None,
) -> Iterator[dict[str, Any]]:
    """Replays a log for each policy and seed; yields a dict for each policy, seed and step, in that
    order.

    Each run starts from the beginning of the log. Policies with the same seed get the same prompts
    and the same order of logged rewards. The results do not depend on `workers`.

    Args:
        policies: Policies by name. A value is a `Policy`, the name of a method, or a function such
            as `ba.knapsack`, which is called with `seed=`. Each seed gets a copy of a `Policy`,
            with what it has learned so far.
        world: The log.
        budget: The rollouts that a step may *generate*, also for a policy that trains on only a
            part of them. If the budget does not suffice for the `floor` of all candidates, the
            floor holds for prompts that get any rollouts.
        steps: Training steps; by default as many as the log has rollouts for.
        seeds: Integers of at least 0, each once.
        prompts: Different prompts in the batch of a step; by default the number that gives groups
            of the log's median size.
        workers: Processes; by default one for each core. 1 runs everything in this process. "ray"
            runs on a Ray cluster (see `budgetalloc.offline.parallel.in_parallel`).
        progress: Called with the number of runs that have ended and the number of all runs.

    Yields:
        `policy`, `seed` and what `simulate` yields, and for this step alone:

        - `generated`: rollouts;
        - `drawn` and `modelled`: the shares of them that the log and its model answered;
        - `mixed`: the number of groups with unequal rewards;
        - `signal`: the mean over rollouts of 4 times the variance of the prompt's logged rewards
          (`Replay.variances`): 4 p (1-p) for rewards of 0 and 1. It is also defined for groups of
          one.

    Raises:
        InputError: no policy or seed, a seed twice, or more rollouts than the log has.
        UnsupportedError: `workers="ray"`, and Ray is not installed.

    >>> import budgetalloc as ba
    >>> log = ba.testing.log_of(ba.testing.three_kinds(6), steps=2, prompts=6, group=4)
    >>> run = comparisons({"uniform": ba.uniform()}, log, 24, seeds=[0], workers=1)
    >>> [(seen["step"], seen["mixed"], seen["mixed_rollouts"], seen["drawn"]) for seen in run]
    [(1, 2, 0.3333333333333333, 1.0), (2, 2, 0.3333333333333333, 1.0)]
    """
    what = "a mapping from names to policies, such as {'uniform': ba.uniform()}"
    check_type("policies", policies, Mapping, what)
    replay = world if isinstance(world, Replay) else Replay(world)
    seeds = check_list("seeds", seeds, "integers of at least 0, such as range(5)")
    seeds = [check_seed(seed, "seeds") for seed in seeds]
    if progress is not None:
        what = "of the number of runs that have ended and of all runs"
        check_function("progress", progress, what)
    if not policies or not seeds or len(set(seeds)) < len(seeds):
        raise InputError(
            f"policies={list(policies)}, seeds={seeds}: give at least one policy and one seed, and "
            "each seed once.",
            argument="policies",
        )
    rollouts = (
        rollouts_alone(budget) if isinstance(budget, Budget) else check_integer("budget", budget, 1)
    )
    if rollouts is None:
        raise InputError(
            "budget", "a log has neither token costs nor domains. Use Budget(rollouts=...).", budget
        )
    if steps is None:
        steps = max(replay.rollouts // rollouts, 1)
    if (check_integer("steps", steps, 1) - 1) * rollouts >= replay.rollouts:
        raise InputError(
            "steps",
            f"{steps} steps of {rollouts} rollouts are {steps * rollouts} "
            f"rollouts, and the log has {replay.rollouts}. Use at most "
            f"steps={-(-replay.rollouts // rollouts)}, or a smaller budget.",
            steps,
        )
    if prompts is None:
        prompts = min(max(rollouts // max(replay.group, 1), 1), len(replay.ids))
    check_integer("prompts", prompts, 1, len(replay.ids))
    check_workers(workers)
    given, runs = dict(policies), [(name, seed) for name in policies for seed in seeds]

    def play(log: Replay, at: int) -> list[dict[str, Any]]:
        """One run: a dict for each step."""
        name, seed = runs[at]
        policy = given[name]
        if isinstance(policy, Policy):
            policy = replace(policy, seed=seed)
        else:
            policy = resolve_policy(policy, f"policies[{name!r}]", seed=seed)
        world, steps_of_run = log.again(seed), list[dict[str, Any]]()
        limit = _affordable(budget, policy, prompts, len(log.ids))
        before = np.zeros(3)
        for step in simulate(policy, world, limit, steps, prompts=prompts):
            sums = np.array([world.drawn, world.modelled, world.signal])
            drawn, modelled, signal = (sums - before).tolist()
            before, generated = sums, drawn + modelled
            figures = {
                "generated": int(generated),
                "signal": signal / generated,
                "drawn": 1 - modelled / generated,
                "modelled": modelled / generated,
                "mixed": round(step["mixed_groups"] * step["prompts"]),
            }
            steps_of_run.append({"policy": name, "seed": seed, **step, **figures})
        return steps_of_run

    def played() -> Iterator[dict[str, Any]]:
        with closing(in_parallel(play, replay.again(0), len(runs), workers)) as results:
            for ended, run in enumerate(results, start=1):
                if progress is not None:
                    progress(ended, len(runs))
                yield from run

    return played()


@keywords
def compare(
    policies: Mapping[str, PolicyLike],
    world: Replay | Ledger,
    budget: Budget | int,
    *,
    steps: int | None = None,
    seeds: Iterable[int] = range(5),
    prompts: int | None = None,
    workers: Workers = None,
    progress: Progress | None = None,
) -> "pd.DataFrame":
    """Compares policies on a log: `summarise(comparisons(...))` as a `pandas.DataFrame`.

    Arguments as in `comparisons`. Differences are from the first policy. The table has a row for
    each policy, whose name is the index, and the columns of `summarise`.

    >>> import budgetalloc as ba
    >>> log = ba.testing.log_of(ba.testing.three_kinds(6), steps=8, prompts=6, group=4)
    >>> table = compare({"uniform": ba.uniform(), "knapsack": ba.knapsack()}, log, 24,
    ...     seeds=range(3), workers=1)
    >>> columns = ["informative_prompts", "mixed", "mixed_rollouts", "modelled"]
    >>> table[columns].T.round(2)
    policy          uniform  knapsack
    informative_prompts             0.08      0.08
    mixed              1.88      1.96
    mixed_rollouts     0.31      0.47
    modelled           0.00      0.14
    """
    pandas = import_optional("pandas", "compare", "logs")  # before the replays
    world = world if isinstance(world, Replay) else Replay(world)
    if world.sweeps == 1:
        _log.warning("%s", NO_HISTORY)
    run = comparisons(
        policies,
        world,
        budget,
        steps=steps,
        seeds=seeds,
        prompts=prompts,
        workers=workers,
        progress=progress,
    )
    table: pd.DataFrame = pandas.DataFrame(summarise(run))
    return table.set_index("policy")


def summarise(steps: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps of `comparisons` as a dict for each policy, with 95 % intervals over seeds.

    Intervals are Student's t over the seeds' means, NaN for one seed. They show the variation over
    draws from the same log, not over training runs. Differences are from the first policy, paired
    by seed.

    Returns:
        `policy`, `seeds` (their number), `steps`, and `rollouts` generated by one seed. For each x
        of `FIGURES` (means over the steps of what `comparisons` yields, each step weighted by its
        rollouts): `x`, `x_low`, `x_high`, and the differences `x_diff`, `x_diff_low`,
        `x_diff_high`.
    """
    pandas = import_optional("pandas", "compare", "logs")
    seen = pandas.DataFrame(list(steps))
    seen[list(_SHARES)] = seen[list(_SHARES)].mul(seen["generated"], axis=0)
    runs = seen.groupby(["policy", "seed"], sort=False)
    sums = runs[["generated", "mixed", *_SHARES]].sum().assign(steps=runs.size())
    figures = sums[list(_SHARES)].div(sums["generated"], axis=0)
    figures["mixed"] = sums["mixed"] / sums["steps"]
    rows: list[dict[str, Any]] = []
    base_SF = np.zeros(0)
    for name, of_policy in figures[list(FIGURES)].groupby(level="policy", sort=False):
        value_SF = of_policy.to_numpy()
        base_SF = base_SF if rows else value_SF
        own = sums.loc[name]
        row = {"policy": name, "seeds": len(own), "steps": int(own["steps"].iloc[0])}
        row["rollouts"] = float(own["generated"].mean())
        for suffix, table_SF in (("", value_SF), ("_diff", value_SF - base_SF)):
            for figure, value_S in zip(FIGURES, table_SF.T, strict=True):
                column = figure + suffix
                low, high = interval(value_S)
                row |= {column: float(value_S.mean()), f"{column}_low": low, f"{column}_high": high}
        rows.append(row)
    return rows


def until_interrupted(
    steps: Iterable[dict[str, Any]], seeds: int
) -> tuple[list[dict[str, Any]], bool]:
    """The steps of `comparisons`, and whether Ctrl-C ended them early. They are then those of the
    policies that were played with all their `seeds`.

    Raises:
        KeyboardInterrupt: Ctrl-C came before any policy was.

    >>> def steps():
    ...     yield {"policy": "uniform", "seed": 0}
    ...     yield {"policy": "uniform", "seed": 1}
    ...     yield {"policy": "adaptive", "seed": 0}
    ...     raise KeyboardInterrupt
    >>> until_interrupted(steps(), seeds=2)
    ([{'policy': 'uniform', 'seed': 0}, {'policy': 'uniform', 'seed': 1}], True)
    """
    seen: list[dict[str, Any]] = []
    try:
        seen.extend(steps)
    except KeyboardInterrupt:
        runs = Counter((step["policy"], step["seed"]) for step in seen)
        whole = Counter(name for (name, _), steps in runs.items() if steps == max(runs.values()))
        if seeds not in whole.values():
            raise
        return [step for step in seen if whole[step["policy"]] == seeds], True
    return seen, False


def _affordable(budget: Budget | int, policy: Policy, prompts: int, pool: int) -> Budget | int:
    """The budget for `simulate` with this policy: generated rollouts count, and the floor is
    feasible."""
    generate = policy.needs.generate  # `simulate` multiplies by it
    if not isinstance(budget, Budget):
        return max(budget // generate, 1)
    rollouts = max(int(budget.rollouts or 0) // generate // budget.quantum, 1) * budget.quantum
    bounds = Bounds.resolve(policy.needs)
    budget = bounds.filled(budget)
    needed = bounds.on_offer(prompts, pool) * budget.smallest_group
    if budget.fewest and needed > rollouts * generate:
        return replace(budget, rollouts=rollouts, floor=0, min_group=budget.smallest_group)
    return replace(budget, rollouts=rollouts)

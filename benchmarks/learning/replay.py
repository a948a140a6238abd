"""How many groups would have been mixed if a policy had decided, on a logged GRPO run of a real language model.

    python benchmarks/learning/replay.py [--data FOLDER] [--back 0 --ahead 2]

The log is that of `predict.py`, in the same sweeps: steps of 128 prompts x 8 rollouts, over the visits that every
prompt has. The world is `budgetalloc.Replay`: each policy decides from its own history, that is from the rewards of the
rollouts that it requested, and learning does not react to its choices. Two settings: rollouts move inside the batch of
128 (floor 2), or go to any of 512 candidates (floor 0): the batch's own and others drawn anew at each step. The cap is
64, and a group has at least 2, also for `adaptive`, which requests groups of one otherwise: those are never mixed.

A policy that generates more than it trains on has the same 1,024 rollouts as the others, and all of them count.

"Value" is sum_i P(mixed group of n_i | p_i) with p_i the mean reward of the visits around the present one (`--back`,
`--ahead`). The base is uniform on the batch's own prompts, as plain GRPO; the oracle maximises the value knowing p_i.
Both are estimates that contain the present visit: the noise in p_i biases the oracle's value upwards, and with `--back`
above 0 policies have observed some of the rewards in p_i, which biases their values upwards. "Really drawn" is the
number of mixed groups in the replay, modelled rewards included; the model uses visits v-2 to v+2 for any window of p_i.
The first sweep is played but not scored. Intervals: Student's t over blocks of four sweeps with all their
steps (95 %); one seed of the policies.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from predict import DATA, LOG, SIZE, STEP, Floats, Ints, Log, log_likelihood, ratio, read, sweeps

import budgetalloc as ba
from budgetalloc.beliefs.ids import Id
from budgetalloc.methods.table import METHODS

# Name: the policy, and whether only the batch's own prompts are on offer to it.
RIVALS: dict[str, tuple[Callable[[int], ba.Policy], bool]] = {
    "uniform": (lambda seed: ba.uniform(seed=seed), True),
    "uniform over all on offer": (lambda seed: ba.uniform(seed=seed), False),
    "knapsack, posterior": (lambda seed: ba.knapsack(seed=seed), False),
    "knapsack, mean": (lambda seed: ba.knapsack(belief="mean", seed=seed), False),
}
RIVALS |= {
    method.name: (lambda seed, method=method: method.build(seed=seed), False)
    for method in METHODS
    if method.name not in ("uniform", "knapsack", "sampled")  # the first two are above; adaptive() is the third
}
BASE = "uniform"
SETTINGS = {"inside the batch of 128": (1, 2), "among 512 candidates": (4, 0)}  # prompts for each of the batch, floor
CAP = 8 * SIZE
BLOCK = 4  # sweeps


@dataclass(frozen=True)
class Offer:
    """The prompts of one step, `own` ones of the batch first."""

    sweep: int
    ids_P: list[Id]
    own: int


@dataclass(frozen=True)
class Played:
    """The value of each step's decision, its mixed groups, and the share of the rollouts that were modelled."""

    value_S: Floats
    mixed_S: Floats
    modelled: float


def ledger(log: Log) -> ba.Ledger:
    """The log as a ledger, a row per rollout. A visit is a step, because the order of the run's steps is unknown."""
    n = log.rollouts_G
    first_R = np.repeat(np.cumsum(n) - n, n)
    passed_R = np.arange(n.sum()) - first_R < np.repeat(log.successes_G, n)
    columns = {"step": np.repeat(log.visit_G, n), "prompt": np.repeat(log.prompt_G, n), "reward": passed_R * 1.0}
    return ba.Ledger.of_frame(pd.DataFrame(columns))


def offers(log: Log, times: int, seed: int, step: int = STEP) -> list[Offer]:
    """The steps of the sweeps that all prompts have; with `times` above 1, more prompts to choose among."""
    every, visits = np.unique(log.prompt_G, return_counts=True)
    offered = []
    for at in sweeps(log, step):
        sweep, own_P = int(log.visit_G[at[0]]), log.prompt_G[at]
        if sweep >= visits.min():
            break
        others = np.setdiff1d(every, own_P)
        drawn = np.random.default_rng([seed, len(offered)]).permutation(others)[: (times - 1) * len(own_P)]
        offered.append(Offer(sweep, [*own_P.tolist(), *drawn.tolist()], len(own_P)))
    return offered


def worth(rates_P: Floats, counts_P: Ints) -> float:
    """The expected number of mixed groups.

    >>> worth(np.array([0.5, 0.5, 1.0, 0.3]), np.array([2, 4, 8, 0]))
    1.375
    """
    values_PN = ba.mixed_group(ba.Point(rates_P), np.arange(counts_P.max() + 1))
    return float(values_PN[np.arange(len(counts_P)), counts_P].sum())


def ask(world: ba.Replay, ids_P: list[Id], counts_P: Ints, seen_2P: Floats) -> tuple[list[Id], Floats]:
    """The rollouts' ids and rewards; adds the successes and the rollouts of each prompt to `seen_2P`."""
    at_R = np.repeat(np.arange(len(ids_P)), counts_P)
    ids_R = [ids_P[k] for k in at_R.tolist()]
    rewards_R = world.rollout(ids_R)
    seen_2P += np.stack([np.bincount(at_R, weights=rewards_R, minlength=len(ids_P)), counts_P])
    return ids_R, rewards_R


def play(
    policy: ba.Policy | None, log: ba.Ledger, steps: list[Offer], floor: int, own: bool, near: dict[str, int]
) -> Played:
    """Plays the steps with a policy in a new world. None is the oracle, which knows the rates of the value."""
    world = ba.Replay(log)
    values, mixed = [], []
    for offer in steps:
        if offer.sweep != world.sweep:
            world.sweep = offer.sweep
        ids_P = offer.ids_P[: offer.own] if own else offer.ids_P
        budget = ba.Budget(SIZE * offer.own, floor=floor, cap=CAP, min_group=2)
        rates_P = world.rates(ids_P, **near)
        seen_2P = np.zeros((2, len(ids_P)))
        if policy is None:
            ask(world, ids_P, ba.greedy(ba.mixed_group(ba.Point(rates_P), budget.grid()), None, budget), seen_2P)
        else:
            step = policy.begin(ids_P, budget)
            while (counts_P := step.request()).any():
                step.observe(*ask(world, ids_P, counts_P, seen_2P))
            step.end()
        passed_P, rollouts_P = seen_2P
        values.append(worth(rates_P, rollouts_P.astype(np.int64)))
        mixed.append(float(((passed_P > 0) & (passed_P < rollouts_P)).sum()))
    return Played(np.array(values), np.array(mixed), world.modelled / (world.drawn + world.modelled))


def share(played_S: Floats, base_S: Floats, oracle_S: Floats, sweep_S: Ints) -> tuple[float, float, float]:
    """The share of the oracle's gain over the base, with a 95 % interval from blocks of neighbouring sweeps.

    Neighbouring sweeps are correlated, so single steps would give too narrow an interval.
    """
    _, at_S = np.unique(sweep_S, return_inverse=True)
    return ratio(*(np.bincount(at_S // BLOCK, weights=x_S - base_S) for x_S in (played_S, oracle_S)))


def check_model(log: Log, prior: float = 0.5, near: int = 2) -> tuple[float, float, float]:
    """How the world's model predicts a visit from its four neighbours, over the visits that all prompts have.

    Returns nats per visit, predicted mixed groups and real mixed groups.
    """
    order = np.lexsort((log.visit_G, log.prompt_G))
    _, visits = np.unique(log.prompt_G, return_counts=True)
    order = order[log.visit_G[order] < visits.min()]
    passed_PV, rollouts_PV = (x[order].reshape(len(visits), -1) for x in (log.successes_G, log.rollouts_G))
    middle = slice(near, passed_PV.shape[1] - near)

    def others(counts_PV: Ints) -> Ints:
        last = counts_PV.shape[1] - 2 * near
        return sum(counts_PV[:, k : k + last] for k in range(2 * near + 1)) - counts_PV[:, middle]

    alpha_G = (prior + others(passed_PV)).ravel()
    beta_G = (prior + others(rollouts_PV - passed_PV)).ravel()
    n, passed = rollouts_PV[:, middle].ravel(), passed_PV[:, middle].ravel()
    scores = log_likelihood(alpha_G, beta_G, Log(n, n, passed, n))
    mixed_GN = ba.mixed_group(ba.Beta(alpha_G, beta_G), np.arange(n.max() + 1))
    real = (passed > 0) & (passed < n)
    return float(scores.mean()), float(mixed_GN[np.arange(len(n)), n].mean()), float(real.mean())


def report(log: Log, setting: str, names: list[str], seed: int, near: dict[str, int], step: int = STEP) -> None:
    """Prints the table: each policy's share of the oracle's gain, with its interval."""
    times, floor = SETTINGS[setting]
    steps, rows = offers(log, times, seed, step), ledger(log)
    sweep_S, own_S = np.array([x.sweep for x in steps]), np.array([x.own for x in steps])
    scored_S = sweep_S > 0
    prompts = own_S[scored_S].sum() / step

    def line(name: str, played: Played, cell: str) -> None:
        value, mixed = (x[scored_S].sum() / prompts for x in (played.value_S, played.mixed_S))
        print(f"| {name} | {value:.1f} | {cell} | {mixed:.1f} | {100 * played.modelled:.1f} % |", flush=True)

    print(f"\n{setting}: {scored_S.sum()} steps, figures for {step} prompts of the batch, {SIZE * step:,} rollouts\n")
    print("| policy | mixed groups a step (value) | share of the oracle's gain | really drawn | modelled |")
    print("|---|---|---|---|---|")
    base = play(RIVALS[BASE][0](seed), rows, steps, floor, True, near)
    best = play(None, rows, steps, floor, False, near)
    line(BASE, base, "0")
    for name in names:
        build, own = RIVALS[name]
        if name == BASE or (times == 1 and name == "uniform over all on offer"):
            continue
        played = play(build(seed), rows, steps, floor, own, near)
        arrays = (x.value_S[scored_S] for x in (played, base, best))
        part, low, high = share(*arrays, sweep_S[scored_S])
        line(name, played, f"{part:.2f} ({low:.2f} to {high:.2f})")
    line("oracle", best, "1")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with the logged rewards")
    parser.add_argument("--policy", action="append", choices=RIVALS, help="default: all")
    parser.add_argument("--setting", action="append", choices=SETTINGS, help="default: both")
    parser.add_argument("--back", type=int, default=2, help="visits before the present one that p is averaged over")
    parser.add_argument("--ahead", type=int, default=2, help="visits after it")
    parser.add_argument("--seed", type=int, default=0, help="of the policies and the candidates")
    args = parser.parse_args(arguments)
    if not (args.data / LOG).exists():
        print(f"Skipped: {args.data / LOG} is not there. Give the folder of the logged rewards with --data.")
        return
    log = read(args.data / LOG)
    nats, mixed, real = check_model(log)
    print(
        "A replay: learning does not react to the allocation. p is the mean reward of visits "
        f"v-{args.back} to v+{args.ahead}.\nThe model of rollouts beyond the log, tried on visits from the four around "
        f"each: {nats:.3f} nats a visit, {mixed:.3f} mixed groups of {SIZE} where {real:.3f} were."
    )
    near = {"back": args.back, "ahead": args.ahead}
    names = args.policy or list(RIVALS)
    for setting in args.setting or SETTINGS:
        report(log, setting, names, args.seed, near)


if __name__ == "__main__":
    main()

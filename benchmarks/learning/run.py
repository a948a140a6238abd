"""Real GRPO runs of many policies, mixes, learning rates and seeds; resumable, on any number of processes.

    python benchmarks/learning/run.py --policy adaptive --mix u_shape --seed 0          # one run
    python benchmarks/learning/run.py --tune --jobs 2                                   # learning rates, seeds 100-101
    python benchmarks/learning/run.py --jobs 2                                          # the table, seeds 0-4
    python benchmarks/learning/run.py --config configs/knapsack.yaml --rate 3e-4        # a policy of yours
    RAY_ADDRESS=head:6379 python benchmarks/learning/run.py --ray                       # on a Ray cluster
    python benchmarks/learning/verdict.py                                               # the table from the results

A run that is in the results file already is not repeated. Every rollout that was generated counts. A policy of a file
is named by the file and a hash of its settings, so that results of an earlier version stay apart. With --ray, every
node of the cluster needs this folder under the same path and the same packages; without RAY_ADDRESS, Ray runs here.
"""

import argparse
import contextlib
import hashlib
import itertools
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import oracle  # beside this file
from mixes import MIXES, SIZED, describe
from tqdm import tqdm

import budgetalloc as ba
from budgetalloc import policies
from budgetalloc.cli.config import Config
from budgetalloc.errors import BudgetallocError
from budgetalloc.offline.parallel import Workers, in_parallel


def retries(seed: int, explore: float, discount: float) -> ba.Policy:
    """A candidate for the default: one generation a step, and failures go on in the next."""
    return policies.retrying(policies.sampled(groups=2, explore=explore, discount=discount, seed=seed))


# Name: the policy, and how the callback attaches it where that is not what the policy asks for.
RIVALS: dict[str, tuple[Callable[[int], ba.Policy], dict[str, Any]]] = {
    "uniform": (lambda seed: ba.uniform(seed=seed), {}),
    "uniform2": (lambda seed: ba.uniform(seed=seed), {}),
    "uniform4": (lambda seed: ba.uniform(seed=seed), {}),
    "uniform16": (lambda seed: ba.uniform(seed=seed), {}),
    "dapo": (lambda seed: ba.methods.dapo(seed=seed), {}),
    "knapsack_rl": (lambda seed: ba.methods.knapsack_rl(seed=seed), {}),
    "vade": (lambda seed: ba.methods.vade(seed=seed), {}),
    "cures": (lambda seed: ba.methods.cures(first=0, seed=seed), {}),
    "pilot_commit": (lambda seed: ba.methods.pilot_commit(seed=seed), {}),
    "ar3po": (lambda seed: ba.methods.ar3po(seed=seed), {}),
    "reinforce_ada": (lambda seed: ba.methods.reinforce_ada(group=8, seed=seed), {}),  # keeps 8 of a prompt, not 4
    "reinforce_ada_released": (lambda seed: ba.methods.reinforce_ada(seed=seed), {}),
    "thompson_dapo": (lambda seed: ba.methods.dapo(order="thompson", seed=seed), {}),
    "thompson_group": (lambda seed: ba.thompson(seed=seed), {}),
    "thompson_posterior": (lambda seed: ba.thompson(seed=seed), {"baseline": "posterior", "scale": "rms"}),
    # Shows what the posterior baseline in groups of one does without any choice among prompts.
    "equal_singles": (lambda seed: policies.sampled(power=(0, 0), seed=seed), {}),
    "spo": (lambda seed: ba.methods.spo(seed=seed), {}),
    # Its first steps measure 8 rollouts of each prompt: all of a run on seen_once (4,810 prompts) and on larger pools.
    "spo_offline": (lambda seed: ba.methods.spo(offline=8, seed=seed), {}),
    "spo_pp": (lambda seed: ba.methods.spo_pp(seed=seed), {}),
    "reinforce_pp": (lambda seed: ba.methods.reinforce_pp(seed=seed), {}),
    # The category is the skill, which is the front of a prompt's number: four digits follow it, or eight in `growing`.
    "pac": (
        lambda seed: ba.methods.pac(domain_of=lambda x: int(x) // 10 ** (4 if int(x) < 10**6 else 8), seed=seed),
        {},
    ),
    "bots": (lambda seed: ba.methods.bots(seed=seed), {}),  # without anchor models, which a new run does not have
    "prime_pools": (lambda seed: ba.methods.prime_pools(seed=seed), {}),
    # These measure 8 rollouts of each prompt first, as spo_offline does.
    "adarft": (lambda seed: ba.methods.adarft(seed=seed), {}),
    "sgpo": (lambda seed: ba.methods.sgpo(phases=(30, 60), seed=seed), {}),
    "a_star_po": (lambda seed: ba.methods.a_star_po(seed=seed), {}),
    "ebpo": (lambda seed: ba.methods.ebpo(seed=seed), {}),
    "aero": (lambda seed: ba.methods.aero(seed=seed), {}),
    "v05": (lambda seed: ba.methods.v05(more=4, seed=seed), {}),  # the paper's 1 takes up to 13 rounds a step
    # The default, also in small pools; and that of 0.5.0, whose rule `adaptive` still has with features and rounds.
    "adaptive": (lambda seed: ba.adaptive(seed=seed), {"fallback": False}),
    "sampled": (lambda seed: policies.sampled(groups=2, seed=seed), {}),
    "adaptive_text": (lambda seed: ba.adaptive(seed=seed), {"features": "text"}),
    # The choice of prompts without the posterior baseline: groups of at least 4 with their own mean and deviation.
    "own_groups": (
        lambda seed: policies.sampled(groups=2, seed=seed),
        {"baseline": "group", "scale": "group", "min_group": 4},
    ),
    "adaptive_singles": (lambda seed: policies.sampled(groups=1, seed=seed), {}),
    "sampled_second": (lambda seed: policies.sequential(policies.sampled(groups=2, seed=seed)), {}),
    "text_second": (
        lambda seed: policies.sequential(policies.sampled(groups=2, unsolved=0.5, seed=seed)),
        {"features": "text"},
    ),
    "explore_1": (lambda seed: policies.sampled(groups=2, explore=0.1, seed=seed), {}),
    "text_explore_1": (lambda seed: ba.adaptive(explore=0.1, seed=seed), {"features": "text"}),
    "adaptive_3": (lambda seed: ba.adaptive(rounds=3, seed=seed), {}),
    "even_3": (lambda seed: ba.adaptive(explore=1, rounds=3, seed=seed), {}),
    # The next default, chosen by the rule of README.md: `even_3` whose evidence also fades at a visit.
    "even_fading": (
        lambda seed: policies.growing(policies.sampled(groups=2, explore=1, discount=0.9, seed=seed), rounds=3),
        {"fallback": False},  # also in small pools
    ),
    # Without rounds: failures go on in the next step. The candidates of README.md.
    **{
        f"retry_{choice}_{round(100 * kept)}_{scale}": (
            partial(retries, explore=explore, discount=kept),
            {"fallback": False, "scale": scale},
        )
        for choice, explore in (("alike", 1.0), ("drawn", 0.0))
        for kept in (0.9, 0.96, 1.0)
        for scale in ("group", "none")
    },
    "sampled_tokens": (lambda seed: policies.sampled(groups=2, seed=seed), {"cost": "tokens"}),
    "sampled_seconds": (lambda seed: policies.sampled(groups=2, seed=seed), {"cost": "seconds"}),
}
ROLLOUTS = 256  # a step of 32 prompts x 8; a mix with larger steps has fewer of them
GENERATIONS = {"uniform2": 2, "uniform4": 4, "uniform16": 16, "reinforce_ada_released": 4}  # others: 8, in as many rows
USES = " x"
"""Between a policy's name and how often each rollout is used, in the names of runs with `num_iterations` above 1."""
COLUMNS = ("rollouts", "expected", "pass64", "tokens", "seconds")
"""The curve in a line of the results file: a list of its points for each column. `mixed` is the mean share of rollouts
in mixed groups, `clipped` TRL's mean share of clipped tokens where rollouts are used more than once. Lines of older
runs have only what a table, a picture or a notebook reads."""
Job = tuple[str, str, float, int, int]  # policy, mix, learning rate, seed, steps


def named(config: Config) -> str:
    """The file's name and a hash of every setting of the policy: another value is another policy."""
    said = [config.method, *map(dict, (config.arguments, config.sizes, config.callback))]
    return f"{Path(config.file).stem}-{hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:8]}"


def split_uses(name: str) -> tuple[str, int]:
    """A policy and how often it uses each rollout.

    >>> split_uses("uniform4 x2"), split_uses("uniform4"), split_uses("my x2-1a2b3c4d")
    (('uniform4', 2), ('uniform4', 1), ('my x2-1a2b3c4d', 1))
    """
    policy, mark, uses = name.rpartition(USES)
    return (policy, int(uses)) if mark and uses.isdecimal() else (name, 1)


def run(job: Job, configs: dict[str, Config] | None = None) -> dict[str, Any]:
    """One training run; its curve as a line of the results file. `configs`: policies of files by their names."""
    from train import train

    from budgetalloc.trl import AdaptiveGRPOCallback

    full_name, mix, rate, seed, steps = job
    name, uses = split_uses(full_name)
    if configs and name in configs:
        config = configs[name]
        build, options = config.build, config.callback_arguments(ROLLOUTS)
        options.pop("ledger", None)  # runs side by side would share the file
    else:
        # Exact beliefs need no fallback: advantages of hopeless prompts are a little below 0, which looks like a lean.
        build, options = (None, {"fallback": False}) if name in oracle.NAMES else RIVALS[name]
    of_mix = (MIXES | SIZED)[mix]
    task, rollouts = of_mix.task(seed), of_mix.rollouts

    def attach(trainer: Any) -> None:
        policy = oracle.policy(name, trainer, of_mix, task["rows"], seed) if build is None else build(seed)
        trainer.add_callback(AdaptiveGRPOCallback(trainer, policy, **options))

    generate = 1 if build is None else build(seed).needs.generate
    result = train(
        attach,
        steps=uses * (steps * ROLLOUTS // rollouts),
        max_rollouts=steps * ROLLOUTS,  # a policy that resamples makes fewer steps of them
        eval_every=uses * max(1, 10 * ROLLOUTS // rollouts // generate),
        prompts=rollouts // GENERATIONS.get(name, 8),
        generations=GENERATIONS.get(name, 8),
        learning_rate=rate,
        seed=seed,
        num_iterations=uses,
        **task,
        threads=1,
        progress=False,
    )
    columns = {each: [round(getattr(point, each), 6) for point in result.curve] for each in COLUMNS}
    shares = [point.mixed_rollouts or 0.0 for point in result.curve[1:]]
    mixed = round(sum(shares) / len(shares), 5)
    line = {"policy": full_name, "mix": mix, "rate": rate, "seed": seed, "steps": steps, **columns, "mixed": mixed}
    return line | ({"clipped": round(result.clipped, 5)} if uses > 1 else {})


def run_at(given: tuple[list[Job], dict[str, Config]], at: int) -> dict[str, Any]:
    jobs, configs = given
    return run(jobs[at], configs)


def key(row: dict[str, Any]) -> Job:
    return row["policy"], row["mix"], row["rate"], row["seed"], row["steps"]


def read(path: Path) -> list[dict[str, Any]]:
    """The runs in a results file; a line torn by a kill is left out, and its run is repeated."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def mean_success(row: dict[str, Any]) -> float:
    """Area under the curve of held-out success against rollouts, by the trapezoid rule, over the rollouts."""
    rollouts = row["rollouts"]
    return float(np.trapezoid(row["expected"], rollouts) / (rollouts[-1] - rollouts[0]))


def best_rates(rows: list[dict[str, Any]], seeds: range) -> dict[tuple[str, str], float]:
    """For each policy and mix, the rate with the largest mean success over the rollouts, on the tuning seeds."""
    scores: dict[tuple[str, str], dict[float, list[float]]] = {}
    for row in rows:
        if row["seed"] in seeds:
            by_rate = scores.setdefault((row["policy"], row["mix"]), {})
            by_rate.setdefault(row["rate"], []).append(mean_success(row))
    return {which: max(by_rate, key=lambda r: sum(by_rate[r]) / len(by_rate[r])) for which, by_rate in scores.items()}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--policy", action="append", choices=[*RIVALS, *oracle.NAMES], help="default: all, or those of --config"
    )
    parser.add_argument(
        "--config", action="append", type=Path, default=[], help="a YAML file with a policy, see configs/"
    )
    parser.add_argument("--mix", action="append", choices=[*MIXES, *SIZED], help="default: all but sizes")
    parser.add_argument("--seed", type=int, action="append", help="default: 0 to 4; with --tune, 100 and 101")
    parser.add_argument("--rate", type=float, action="append", help="default: the tuned one; with --tune, the grid")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--uses", type=int, action="append", help="optimizer steps on each rollout; default: 1")
    parser.add_argument(
        "--tune", action="store_true", help="try all learning rates on seeds that the table does not use"
    )
    side_by_side = parser.add_mutually_exclusive_group()
    side_by_side.add_argument("--jobs", type=int, default=1, help="processes side by side")
    side_by_side.add_argument("--ray", action="store_true", help="each run is a task of one CPU on a Ray cluster")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results.jsonl"))
    args = parser.parse_args(argv)
    try:
        configs = {named(config): config for config in map(Config.read, args.config)}
        for config in configs.values():
            config.callback_arguments(ROLLOUTS)
    except (BudgetallocError, OSError) as error:
        parser.error(str(error))
    print(describe())
    rows = read(args.out)
    done = {key(row) for row in rows}
    tuned = best_rates(rows, range(100, 200))
    jobs: list[Job] = []
    for mix, seed, policy, uses in itertools.product(
        args.mix or MIXES,
        args.seed or ((100, 101) if args.tune else range(5)),
        [*(args.policy or ([] if configs else RIVALS)), *configs],
        args.uses or [1],
    ):
        name = policy if uses == 1 else f"{policy}{USES}{uses}"
        for rate in args.rate or ((MIXES | SIZED)[mix].rates if args.tune else [tuned.get((name, mix))]):
            if rate is None:
                parser.error(f"no learning rate for {name} on {mix}: run with --tune first, or give --rate")
            jobs.append((name, mix, rate, seed, args.steps))
    todo = [job for job in dict.fromkeys(jobs) if job not in done]
    print(f"{len(jobs)} runs, {len(jobs) - len(todo)} of them done before")
    if args.out.exists() and not args.out.read_bytes().endswith(b"\n"):
        with args.out.open("a") as file:
            file.write("\n")  # a kill tore the last line: keep it apart from the next
    workers: Workers = "ray" if args.ray else args.jobs
    with contextlib.closing(in_parallel(run_at, (todo, configs), len(todo), workers, ordered=False)) as ended:
        for row in tqdm(ended, total=len(todo), unit="run"):
            with args.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            name, mix, rate, seed, _ = key(row)
            tqdm.write(f"{name} on {mix}, rate {rate:g}, seed {seed}: {row['expected'][-1]:.3f}")


if __name__ == "__main__":
    main()

"""How well an estimator predicts a prompt's next group, on a logged GRPO run of a real language model.

    python benchmarks/learning/predict.py [--data FOLDER]

The log (`dsr_sub_grpo_history.csv.gz`, Qwen2.5-Math-1.5B, 500 steps of 128 prompts x 8 rollouts) has each prompt's
visits in order, but not the order of the steps. The replay therefore goes through sweeps: all first visits, then all
second ones, at most 128 a step, prompts in the order of a hash. A prediction uses the rewards of earlier steps only. As
a check, visits are also spread over random epochs, with a prompt at most once in each.

The score is the log-likelihood of the successes of 8 under the belief's beta-binomial, over visits 1 to 49 of each
prompt (0 is the first). Intervals are Student's t over prompts (95 %). "Tuned" is the discount chosen on the prompts
whose hash is even; "held out" are the others. The form of the pooled estimator was chosen on this log, but none of its
numbers was fitted to it. The prior (0.3, 0.3) of `adaptive()` was chosen among five on this log (all prompts).
"""

import argparse
import csv
import gzip
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, gammaln

from budgetalloc import Beta, BetaEstimator
from budgetalloc.beliefs.ids import stable_key
from budgetalloc.offline.intervals import interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
LOG = "dsr_sub_grpo_history.csv.gz"
SCORED = (1, 50)
STEP, SIZE = 128, 8
BASE = "Beta(.5,.5), discount 0.9"
ESTIMATORS: dict[str, dict[str, Any]] = {
    "Beta(.5,.5), discount 1": {},
    BASE: {"discount": 0.9},
    "Beta(.5,.5), discount 0.7": {"discount": 0.7},
    "Beta(.5,.5), discount 0.2": {"discount": 0.2},
    "Beta(.5,.5), last visit only": {"discount": 0.0},
    "Beta(.5,.5), discount 0.9, drift": {"discount": 0.9, "drift": True},
    "adaptive(): Beta(.3,.3), idle 0.98": {"prior": (0.3, 0.3), "idle": 0.98},
    "pool, discount 0.9": {"prior": "pool", "discount": 0.9},
    "pool, discount 0.9, drift": {"prior": "pool", "discount": 0.9, "drift": True},
    "pool, discount 0.9, idle 0.999, drift": {"prior": "pool", "discount": 0.9, "idle": 0.999, "drift": True},
    "pool, discount 0.7, idle 0.999, drift": {"prior": "pool", "discount": 0.7, "idle": 0.999, "drift": True},
}
OTHERS = {
    "humaneval_codegen16b_rewards.csv.gz": "HumanEval, CodeGen-16B, no training, so no drift",
    "reasoning_gym_llama3b_rl_checkpoints.csv.gz": "AIME and AMC, Llama-3B, six visits at RL step 400, six at 800",
}
TUNED = [{"prior": "pool", "drift": True, "discount": d} for d in (0.8, 0.85, 0.88, 0.9, 0.92, 0.95, 1.0)]


@dataclass(frozen=True)
class Log:
    """One entry a group: its prompt, which of the prompt's visits it is, successes, rollouts."""

    prompt_G: Ints
    visit_G: Ints
    successes_G: Ints
    rollouts_G: Ints


def read(path: Path) -> Log:
    with gzip.open(path, "rt") as file:
        rows = [[int(x) for x in row] for row in list(csv.reader(file))[1:]]
    return Log(*np.array(rows, dtype=np.int64).T)


def read_samples(path: Path, size: int = SIZE) -> Log:
    """0/1 strings as visits of `size` rollouts each. Further strings of a prompt (later checkpoints) are appended."""
    with gzip.open(path, "rt") as file:
        table = list(csv.DictReader(file))
    key = next(x for x in ("prompt_id", "task_id") if x in table[0])
    strings: dict[str, str] = {}
    for row in sorted(table, key=lambda row: int(row.get("step", 0))):
        text = row["rewards"]
        name = row.get("benchmark", "") + row[key]
        strings[name] = strings.get(name, "") + text[: len(text) // size * size]
    rows = [
        (at, visit, text[visit * size : (visit + 1) * size].count("1"), size)
        for at, text in enumerate(strings.values())
        for visit in range(len(text) // size)
    ]
    return Log(*np.array(rows, dtype=np.int64).T)


def sweeps(log: Log, step: int = STEP) -> Iterator[Ints]:
    """The groups of each step: all first visits in the order of a hash, then all second ones."""
    hashes = np.array([stable_key(int(x)) for x in log.prompt_G], dtype=np.uint64)
    for visit in np.unique(log.visit_G):
        groups = np.flatnonzero(log.visit_G == visit)
        yield from np.split(groups[np.argsort(hashes[groups])], range(step, len(groups), step))


def epochs(log: Log, seed: int, step: int = STEP) -> Iterator[Ints]:
    """The groups of each step, with each prompt's visits spread over random epochs."""
    rng = np.random.default_rng(seed)
    total = int(log.visit_G.max()) + 1
    epoch_G = np.zeros(len(log.visit_G), dtype=np.int64)
    for prompt in np.unique(log.prompt_G):
        of_prompt = np.flatnonzero(log.prompt_G == prompt)
        of_prompt = of_prompt[np.argsort(log.visit_G[of_prompt])]
        epoch_G[of_prompt] = np.sort(rng.choice(total, len(of_prompt), replace=False))
    for epoch in range(total):
        groups = np.flatnonzero(epoch_G == epoch)
        yield from np.split(rng.permutation(groups), range(step, len(groups), step))


def replay(estimator: BetaEstimator, log: Log, steps: Iterable[Ints]) -> tuple[Floats, Floats]:
    """The Beta posterior before each group; a step's rewards are observed after all posteriors of the step."""
    alpha_G, beta_G = np.full((2, len(log.prompt_G)), np.nan)
    for at in steps:
        belief = estimator.belief(log.prompt_G[at])
        alpha_G[at], beta_G[at] = belief.alpha_P, belief.beta_P
        n = log.rollouts_G[at]
        first = np.repeat(np.cumsum(n) - n, n)
        passed = np.arange(n.sum()) - first < np.repeat(log.successes_G[at], n)
        estimator.observe(np.repeat(log.prompt_G[at], n), passed.astype(np.float64))
        estimator.tick()
    return alpha_G, beta_G


def log_likelihood(alpha_G: Floats, beta_G: Floats, log: Log) -> Floats:
    """Beta-binomial log-probability of each group's successes.

    >>> one = Log(*np.array([[0], [0], [1], [2]]))
    >>> log_likelihood(np.array([1.0]), np.array([1.0]), one)  # a uniform p: 0, 1 and 2 of 2 are equally likely
    array([-1.09861229])
    """
    s, n = log.successes_G, log.rollouts_G
    ways = gammaln(n + 1) - gammaln(s + 1) - gammaln(n - s + 1)
    scores: Floats = ways + betaln(alpha_G + s, beta_G + n - s) - betaln(alpha_G, beta_G)
    return scores


def mean_over_prompts(values_G: Floats, prompt_G: Ints) -> tuple[float, float, float]:
    """The mean over groups, with a 95 % interval over prompts, each with all its groups."""
    _, at_G = np.unique(prompt_G, return_inverse=True)
    return ratio(np.bincount(at_G, weights=values_G), np.bincount(at_G).astype(float))


def ratio(sums_K: Floats, sizes_K: Floats) -> tuple[float, float, float]:
    """The ratio of two sums, with Student's t interval of its first-order contributions.

    >>> [round(x, 3) for x in ratio(np.array([1.0, 2.0, 3.0]), np.ones(3))]  # sizes alike: the interval of a mean
    [2.0, -0.484, 4.484]
    """
    value = float(sums_K.sum() / sizes_K.sum())
    return value, *interval(value + (sums_K - value * sizes_K) / sizes_K.mean())


def brier(alpha_G: Floats, beta_G: Floats, log: Log) -> Floats:
    """Squared error of p for a single rollout, averaged over each group's rollouts."""
    p, rate = alpha_G / (alpha_G + beta_G), log.successes_G / log.rollouts_G
    return (p - rate) ** 2 + rate * (1 - rate)


def calibration(p_G: Floats, rate_G: Floats, bins: int = 10) -> list[tuple[int, float, float]]:
    """Groups, mean prediction and mean outcome in equal bins of the prediction, empty bins left out."""
    bin_G = np.minimum((p_G * bins).astype(np.int64), bins - 1)
    return [
        (int(m.sum()), float(p_G[m].mean()), float(rate_G[m].mean())) for b in range(bins) if (m := bin_G == b).any()
    ]


def calibration_error(p_G: Floats, rate_G: Floats) -> float:
    """Mean distance between prediction and outcome over the bins, weighted by groups."""
    return sum(n * abs(p - rate) for n, p, rate in calibration(p_G, rate_G)) / len(p_G)


def _signed(cell: tuple[float, float, float]) -> str:
    return f"{cell[0]:+.4f} ({cell[1]:+.4f} to {cell[2]:+.4f})"


def report(log: Log, steps: Callable[[], Iterable[Ints]]) -> None:
    held_G = np.array([stable_key(int(x)) % 2 == 1 for x in log.prompt_G])
    scored_G = (log.visit_G >= SCORED[0]) & (log.visit_G < SCORED[1])
    beliefs = {name: replay(BetaEstimator(**kw), log, steps()) for name, kw in ESTIMATORS.items()}
    tuning = {kw["discount"]: replay(BetaEstimator(**kw), log, steps()) for kw in TUNED}
    best = max(tuning, key=lambda d: log_likelihood(*tuning[d], log)[scored_G & ~held_G].mean())
    beliefs[f"pool, drift, discount {best} (tuned on the even half)"] = tuning[best]

    base_G = log_likelihood(*beliefs[BASE], log)
    rate_G = log.successes_G / log.rollouts_G
    prompts, held = np.unique(log.prompt_G).size, int((scored_G & held_G).sum())
    print(f"{scored_G.sum():,} groups of {prompts:,} prompts, {held:,} of them of held-out prompts\n")
    columns = "estimator", "log-likelihood a group", f"held out, less {BASE}", "all prompts, less the same"
    columns += "first visit", "Brier", "calibration error", "mixed groups predicted"
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for name, (alpha, beta) in beliefs.items():
        like, p = log_likelihood(alpha, beta, log), alpha / (alpha + beta)
        cells = [f"{like[scored_G].mean():.4f}"]
        cells += [
            _signed(mean_over_prompts((like - base_G)[m], log.prompt_G[m])) for m in (scored_G & held_G, scored_G)
        ]
        cells += [f"{like[log.visit_G == 0].mean():.3f}", f"{brier(alpha, beta, log)[scored_G].mean():.4f}"]
        cells += [f"{calibration_error(p[scored_G], rate_G[scored_G]):.4f}"]
        believed = Beta(alpha, beta)
        mixed_G = 1 - (believed.all_pass([SIZE]) + believed.all_fail([SIZE]))[:, 0]
        cells += [f"{mixed_G[scored_G].mean():.3f}"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    mixed = (log.successes_G > 0) & (log.successes_G < log.rollouts_G)
    print(f"\nGroups that were mixed: {mixed[scored_G].mean():.3f}")

    for name in (BASE, "pool, discount 0.9, drift"):
        alpha, beta = beliefs[name]
        rows = calibration((alpha / (alpha + beta))[scored_G], rate_G[scored_G])
        print(f"\n{name}: groups, p predicted, success observed")
        print("\n".join(f"    {n:6d}  {p:.3f}  {rate:.3f}" for n, p, rate in rows))


def gain(log: Log, steps: Callable[[], Iterable[Ints]], best: dict[str, Any], base: dict[str, Any]) -> str:
    """The gain in log-likelihood of one estimator over another on `SCORED` visits, with its interval."""
    one, two = (log_likelihood(*replay(BetaEstimator(**kw), log, steps()), log) for kw in (best, base))
    scored_G = (log.visit_G >= SCORED[0]) & (log.visit_G < SCORED[1])
    return _signed(mean_over_prompts((one - two)[scored_G], log.prompt_G[scored_G]))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder with the logged rewards")
    folder = parser.parse_args(arguments).data
    if not (folder / LOG).exists():
        print(f"Skipped: {folder / LOG} is not there. Give the folder of the logged rewards with --data.")
        return
    log = read(folder / LOG)
    report(log, partial(sweeps, log))

    pooled, base = ESTIMATORS["pool, discount 0.9, drift"], ESTIMATORS[BASE]
    print("\npool, discount 0.9, drift less Beta(.5,.5), discount 0.9, in random epochs instead of sweeps")
    for seed in range(3):
        print(f"    draw {seed}: {gain(log, partial(epochs, log, seed), pooled, base)}")

    print("\nOther models, visits of 8 rollouts, pool and drift less Beta(.5,.5), both with the discount given")
    for file, what in OTHERS.items():
        if (folder / file).exists():
            other = read_samples(folder / file)
            for discount in (1.0, 0.9):
                cell = gain(other, partial(sweeps, other, 32), {**pooled, "discount": discount}, {"discount": discount})
                print(f"    {what}, discount {discount}: {cell}")


if __name__ == "__main__":
    main()

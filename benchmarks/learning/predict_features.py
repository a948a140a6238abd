"""How well beliefs predict the next group of a logged run, by the visits before it and the rollouts seen a visit.

    python benchmarks/learning/predict_features.py [--data FOLDER]

The log and its order are those of `predict.py`. Of each group of 8, the first 8, 4 or 1 rollouts are observed. The
Brier score is the mean squared error of the predicted success rate against each of the 8 rollouts. "Floor" is the score
of the group's own rate: no prediction can be expected to be better than the noise of the outcomes themselves. Intervals
are Student's t over prompts (95 %), of the difference to the first row.
"""

import argparse
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from predict import DATA, LOG, Floats, Ints, Log, brier, log_likelihood, mean_over_prompts, read, sweeps

import budgetalloc as ba
from budgetalloc.beliefs.estimator import Estimator

TEXTS = "dsr_sub_prompts.jsonl.gz"
VISITS = {"first": (0, 1), "1 to 4 before": (1, 5), "5 to 14": (5, 15), "15 to 49": (15, 50)}
SEEN = (8, 4, 1)


@dataclass(frozen=True)
class Prompts:
    """The text of each prompt of a log, by its number."""

    texts: dict[int, str]

    @classmethod
    def read(cls, path: Path) -> "Prompts":
        with gzip.open(path, "rt") as file:
            rows = [json.loads(line) for line in file]
        return cls({int(row["prompt_id"]): str(row["prompt"]) for row in rows})

    def features(self, shuffled: bool = False) -> ba.Features:
        ids, texts = list(self.texts), list(self.texts.values())
        if shuffled:
            texts = [texts[at] for at in np.random.default_rng(0).permutation(len(texts))]
        return ba.Features.of_texts(ids, texts)


class Gaussian:
    """A Gaussian process of log-odds over the prompts' texts, as VIP's (arXiv 2602.01601), which has embeddings.

    The kernel is squared exponential in the features of the texts, at their median distance, plus an own part of each
    prompt. A group is an observation of its log-odds, (k + 1/2) / (n - k + 1/2), with the variance of that estimate.
    Per step every log-odds gains `WALK` times the prior's covariance. Variances were not tuned.
    """

    SHARED, OWN, WALK = 2.0, 2.0, 0.01

    def __init__(self, features: ba.Features, ids: list[int]) -> None:
        x_PK = features.of(ids)
        squares_P = (x_PK**2).sum(1)
        apart_PP = np.maximum(squares_P[:, None] + squares_P - 2 * x_PK @ x_PK.T, 0)
        kernel_PP = np.exp(-apart_PP / (2 * np.median(apart_PP)))
        self.prior_PP = self.SHARED * kernel_PP + self.OWN * np.eye(len(ids))
        self.covariance_PP, self.mean_P = self.prior_PP.copy(), np.zeros(len(ids))
        self.at = {x: at for at, x in enumerate(ids)}

    def belief(self, ids: list[int]) -> ba.Beta:
        at = [self.at[x] for x in ids]
        return of_log_odds(self.mean_P[at], np.diag(self.covariance_PP)[at])

    def observe(self, ids_R: list[int], success_R: Floats) -> None:
        ids, group_R = np.unique(ids_R, return_inverse=True)
        n, k = np.bincount(group_R).astype(float), np.bincount(group_R, success_R)
        noise, seen = 1 / (k + 0.5) + 1 / (n - k + 0.5), np.log((k + 0.5) / (n - k + 0.5))
        at = [self.at[x] for x in ids.tolist()]
        cross_PB = self.covariance_PP[:, at]
        gain_PB = np.linalg.solve(cross_PB[at] + np.diag(noise), cross_PB.T).T
        self.mean_P += gain_PB @ (seen - self.mean_P[at])
        self.covariance_PP -= gain_PB @ cross_PB.T

    def tick(self) -> None:
        self.covariance_PP += self.WALK * self.prior_PP


class Kalman:
    """A Kalman filter of each prompt's log-odds, as KGPS's (arXiv 2607.27610; formulas from its abstract).

    KGPS's process noise grows with the size of the policy's update, which the log does not have: here it is constant.
    A group is an observation of the log-odds with variance 1 / (n p (1-p)), p shrunk by half a success and a failure.
    """

    START, WALK = 4.0, 0.01

    def __init__(self) -> None:
        self.state: dict[int, tuple[float, float]] = {}  # mean and variance of the log-odds

    def belief(self, ids: list[int]) -> ba.Beta:
        mean, variance = np.array([self.state.get(x, (0.0, self.START)) for x in ids]).T
        return of_log_odds(mean, variance)

    def observe(self, ids_R: list[int], success_R: Floats) -> None:
        ids, group_R = np.unique(ids_R, return_inverse=True)
        n, k = np.bincount(group_R) + 1.0, np.bincount(group_R, success_R) + 0.5
        rate = k / n
        for x, seen, noise in zip(ids.tolist(), np.log(rate / (1 - rate)), 1 / (n * rate * (1 - rate)), strict=True):
            mean, variance = self.state.get(x, (0.0, self.START))
            gain = variance / (variance + noise)
            self.state[x] = mean + gain * (seen - mean), (1 - gain) * variance

    def tick(self) -> None:
        self.state = {x: (mean, variance + self.WALK) for x, (mean, variance) in self.state.items()}


class Nearest:
    """The mean rate of similar prompts of the last 256 groups, as DOTS's difficulty (arXiv 2506.05316).

    DOTS learns an embedding, and attends from a prompt to a reference set of which it knows the current rates. Here the
    features of the texts are the embedding, a weight is exp(4 times the cosine), and the mass of the belief is 4.
    """

    KEPT, SHARPNESS, MASS = 256, 4.0, 4.0

    def __init__(self, features: ba.Features, ids: list[int]) -> None:
        x_PK = features.of(ids)
        self.unit_PK = x_PK / np.maximum(np.linalg.norm(x_PK, axis=1, keepdims=True), 1e-12)
        self.at = {x: at for at, x in enumerate(ids)}
        self.seen: list[tuple[int, float]] = []

    def belief(self, ids: list[int]) -> ba.Beta:
        rate = np.full(len(ids), 0.5)
        if self.seen:
            places, rates = zip(*self.seen, strict=True)
            cosine = self.unit_PK[[self.at[x] for x in ids]] @ self.unit_PK[list(places)].T
            weight = np.exp(self.SHARPNESS * cosine)
            rate = (weight @ np.array(rates) + 0.5) / (weight.sum(axis=1) + 1)
        return ba.Beta(rate * self.MASS, (1 - rate) * self.MASS)

    def observe(self, ids_R: list[int], success_R: Floats) -> None:
        ids, group_R = np.unique(ids_R, return_inverse=True)
        rates = np.bincount(group_R, success_R) / np.bincount(group_R)
        self.seen = [*self.seen, *zip([self.at[x] for x in ids.tolist()], rates.tolist(), strict=True)][-self.KEPT :]

    def tick(self) -> None:
        pass


Rival = Gaussian | Kalman | Nearest


def of_log_odds(mean: Floats, variance: Floats) -> ba.Beta:
    """The Beta of log-odds that are normal: the mean rate by MacKay's approximation, and the mass of its variance."""
    p = np.clip(1 / (1 + np.exp(-mean / np.sqrt(1 + np.pi / 8 * variance))), 1e-3, 1 - 1e-3)
    mass = np.maximum(1 / (p * (1 - p) * variance / (1 + p * (1 - p) * variance)) - 1, 0.05)
    return ba.Beta(p * mass, (1 - p) * mass)


def estimators(prompts: Prompts) -> dict[str, Callable[[], Estimator | Rival]]:
    """A row of the table each: its name, and how its estimator is made."""
    text, shuffled = prompts.features(), prompts.features(shuffled=True)
    return {
        "sampled: Beta(.3,.3), idle 0.98": lambda: ba.BetaEstimator(prior=(0.3, 0.3), idle=0.98),
        "VADE's: discount 0.2, idle 0.999": lambda: ba.BetaEstimator(discount=0.2, idle=0.999),
        "MoPPS's: discount 0.5": lambda: ba.BetaEstimator(prior=(1, 1), discount=0.5),
        "BOTS's, without anchors: 0.8 a step": lambda: ba.BetaEstimator(prior=(1, 1), discount=0.8, idle=0.8),
        "tracking": ba.TrackingEstimator,
        "tracking, text": lambda: ba.TrackingEstimator(text),
        "tracking, texts shuffled": lambda: ba.TrackingEstimator(shuffled),
        "Gaussian process of texts, like VIP's": lambda: Gaussian(text, list(prompts.texts)),
        "Kalman filter of each prompt, like KGPS's": Kalman,
        "nearest texts, like DOTS's": lambda: Nearest(text, list(prompts.texts)),
    }


def predictions(estimator: Estimator | Rival, log: Log, seen: int) -> tuple[Floats, Floats]:
    """The belief before each group; then the first `seen` rollouts of each group of the step are observed.

    The log holds the number of successes of a group, not their order: a hash of the group stands in for it.
    """
    alpha_G, beta_G = np.full((2, len(log.prompt_G)), np.nan)
    rng = np.random.default_rng(0)
    for at in sweeps(log):
        belief = estimator.belief(log.prompt_G[at].tolist())
        alpha_G[at], beta_G[at] = belief.alpha_P, belief.beta_P
        failures = log.rollouts_G[at] - log.successes_G[at]
        passed = rng.hypergeometric(log.successes_G[at], failures, np.minimum(seen, log.rollouts_G[at]))
        ids_R = np.repeat(log.prompt_G[at], seen)
        success_R = (np.arange(seen) < passed[:, None]).astype(np.float64).ravel()
        estimator.observe(ids_R.tolist(), success_R)
        estimator.tick()
    return alpha_G, beta_G


def floor(log: Log) -> Floats:
    """The variance of a group's outcomes around their own mean, corrected for the degree of freedom."""
    rate = log.successes_G / log.rollouts_G
    return rate * (1 - rate) * log.rollouts_G / (log.rollouts_G - 1)


def table(log: Log, prompts: Prompts, seen: int) -> list[str]:
    """Markdown: each estimator's Brier score by earlier visits, and its gain in log-likelihood over the first."""
    bands = {name: (log.visit_G >= low) & (log.visit_G < high) for name, (low, high) in VISITS.items()}
    head = [
        "estimator",
        *(f"Brier, {name}" for name in bands),
        "log-likelihood a group, all visits",
        "less the first row's",
    ]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    all_G = log.visit_G < 50
    base_G: Floats | None = None
    for name, make in estimators(prompts).items():
        alpha_G, beta_G = predictions(make(), log, seen)
        score_G, like_G = brier(alpha_G, beta_G, log), log_likelihood(alpha_G, beta_G, log)
        base_G = like_G if base_G is None else base_G
        gain, low, high = mean_over_prompts((like_G - base_G)[all_G], log.prompt_G[all_G])
        cells = [f"{score_G[band].mean():.4f}" for band in bands.values()]
        cells += [f"{like_G[all_G].mean():.4f}", f"{gain:+.4f} ({low:+.4f} to {high:+.4f})"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    floors = [f"{floor(log)[band].mean():.4f}" for band in bands.values()]
    return [*lines, "| floor | " + " | ".join([*floors, "", ""]) + " |"]


def synthetic(prompts: int = 200, visits: int = 12, seed: int = 0) -> tuple[Log, Prompts]:
    """A small stand-in for the log: the text names one of four subjects, which decides most of the success rate."""
    rng = np.random.default_rng(seed)
    subject_P = rng.integers(0, 4, prompts)
    level_P = np.array([-3.0, -1.0, 1.0, 3.0])[subject_P] + rng.normal(0, 0.5, prompts)
    rows = []
    for visit in range(visits):
        rate_P = 1 / (1 + np.exp(-level_P - 0.1 * visit))
        rows += list(zip(range(prompts), [visit] * prompts, rng.binomial(8, rate_P), [8] * prompts, strict=True))
    columns: list[Ints] = list(np.array(rows, dtype=np.int64).T)
    names = ("algebra", "geometry", "counting", "proof")
    return Log(*columns), Prompts({n: f"{names[subject_P[n]]} question {n}" for n in range(prompts)})


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder with the logged rewards")
    folder = parser.parse_args(arguments).data
    if (folder / LOG).exists() and (folder / TEXTS).exists():
        log, prompts = read(folder / LOG), Prompts.read(folder / TEXTS)
    else:
        print(f"{folder / LOG} or {TEXTS} is not there: a synthetic log takes its place. Give the folder with --data.")
        log, prompts = synthetic()
    for seen in SEEN:
        print(f"\n{seen} of 8 rollouts seen a visit\n")
        print("\n".join(table(log, prompts, seen)))


if __name__ == "__main__":
    main()

"""A logged GRPO run of a real language model, in the order in which `predict_features.py` reads it.

The log (`dsr_sub_grpo_history.csv.gz`, Qwen2.5-Math-1.5B, 500 steps of 128 prompts x 8 rollouts) has each prompt's
visits in order, but not the order of the steps. It is read in sweeps: all first visits, then all
second ones, at most 128 a step, prompts in the order of a hash. Scores are the log-likelihood of a group's successes
under the belief's beta-binomial, and the Brier score. Intervals are Student's t over prompts (95 %).
"""

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, gammaln

from budgetalloc.beliefs.ids import stable_key
from budgetalloc.offline.intervals import interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
LOG = "dsr_sub_grpo_history.csv.gz"
STEP, SIZE = 128, 8


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


def sweeps(log: Log, step: int = STEP) -> Iterator[Ints]:
    """The groups of each step: all first visits in the order of a hash, then all second ones."""
    hashes = np.array([stable_key(int(x)) for x in log.prompt_G], dtype=np.uint64)
    for visit in np.unique(log.visit_G):
        groups = np.flatnonzero(log.visit_G == visit)
        yield from np.split(groups[np.argsort(hashes[groups])], range(step, len(groups), step))


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

"""Quantities learned from all prompts together: the prior of the success rates, and their drift over the steps."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.pool import with_room
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import StateError, check_array

__all__ = ["Drift", "moved_evidence", "pooled_prior"]

_START_PROMPTS = 16.0  # weight of the starting prior, in prompts
_MEMORY = 0.99  # share of the drift's evidence kept at a step: about the last 100 steps count
_SLICE = 2**22  # prompts added up at once
_RIDGE = 1e4  # the drift's prior has mean 0 and a standard deviation of 1 / sqrt(_RIDGE) = 0.01 log-odds a step
_COLUMNS = ("level", "gap", "moved", "mean", "successes", "trials")
_VISIT = np.dtype([(name, np.float64) for name in _COLUMNS])
"""A prompt's last visit: total drift at the visit, steps since the previous visit, log-odds by which the belief moved
between the two, posterior mean before the visit, successes and rollouts."""


def pooled_prior(beliefs_P: Beta, start: tuple[float, float]) -> tuple[float, float]:
    """The Beta with the mean and variance of a rate drawn from one of these beliefs at random.

    This is empirical Bayes by moments. Refitted at each step from beliefs that contain it, it is an EM iteration.

    Args:
        beliefs_P: The beliefs about all prompts seen. Their order does not change the result, to the bit.
        start: Pseudo-successes and pseudo-failures of the starting prior, which counts as 16 prompts.

    Returns:
        Pseudo-successes and pseudo-failures.

    >>> solved, hopeless = Beta(np.full(500, 80.0), np.full(500, 0.5)), Beta(np.full(500, 0.5), np.full(500, 80.0))
    >>> pool = Beta(np.r_[solved.alpha_P, hopeless.alpha_P], np.r_[solved.beta_P, hopeless.beta_P])
    >>> a, b = pooled_prior(pool, (0.5, 0.5))
    >>> round(a, 4), round(b, 4)  # U-shaped: nearly all prompts are solved or hopeless
    (0.0165, 0.0165)
    """
    prior = Beta(np.array([start[0]]), np.array([start[1]]))
    weight = _START_PROMPTS + len(beliefs_P)
    mean = (_sum(beliefs_P.mean) + _START_PROMPTS * float(prior.mean[0])) / weight
    spread = (_sum(beliefs_P.moment(1, 1)) + _START_PROMPTS * float(prior.moment(1, 1)[0])) / weight  # E[p(1-p)]
    strength = spread / (mean * (1 - mean) - spread)  # E[p(1-p)] / Var[p], which is a + b for a Beta
    return mean * strength, (1 - mean) * strength


def _sum(shares_P: FloatArray) -> float:
    """The sum of numbers in [0, 1] as integer multiples of 2^-40: exact in any order, and faster than `math.fsum`."""
    # A slice of 2^22 such integers fits into 63 bits. Python's integers add the slices without overflow.
    slices = (shares_P[at : at + _SLICE] for at in range(0, len(shares_P), _SLICE))
    return float(sum(int(np.rint(part * 2.0**40).astype(np.int64).sum()) for part in slices)) * 2.0**-40


class Drift:
    """The common drift of all prompts: the rise of their log-odds of success per step.

    A visit's s successes in n rollouts are compared with the posterior mean m before the visit. The belief moved by
    `moved` log-odds in the `gap` steps since the previous visit. To first order, the correct move is
    moved + (s - n m) / (n m (1 - m)). The drift is the ridge regression of the correct move on the gap, with weights
    n m (1 - m) that fade by 0.99 a step. Arguments `rows` are rows of prompts. A first visit (gap 0) is no evidence.

    >>> drift = Drift(rows=1000)
    >>> every = np.arange(1000)
    >>> drift.open(every, gap_V=np.full(1000, 10), mean_V=np.full(1000, 0.5))
    >>> drift.add(every, successes_V=np.full(1000, 4.1), trials_V=np.full(1000, 8.0))  # 4 of 8 were expected
    >>> drift.end_step(every)
    >>> round(drift.rate, 4)  # 0.1 / 2 log-odds in 10 steps, slightly shrunk by the ridge
    0.0048
    """

    def __init__(self, rows: int = 0, total: float = 0.0, score: float = 0.0, information: float = 0.0) -> None:
        self.total = total  # rise of the log-odds since the first step
        self.score = score
        self.information = information
        self.visits_P: NDArray[np.void] = np.zeros(rows, dtype=_VISIT)

    @property
    def rate(self) -> float:
        """Log-odds a step."""
        return self.score / (self.information + _RIDGE)

    def reserve(self, rows: int) -> None:
        """Makes room for at least this many prompts."""
        self.visits_P = with_room(self.visits_P, rows)

    def moved(self, rows_V: IntArray | slice) -> FloatArray:
        """The rise of the log-odds of these prompts since their last visits."""
        return np.asarray(self.total - self.visits_P["level"][rows_V])

    def open(self, rows_V: IntArray, gap_V: IntArray, mean_V: FloatArray) -> None:
        """Starts a visit, given the steps since the last visit (0 for none) and the posterior mean before it."""
        visits_V = np.zeros(len(rows_V), dtype=_VISIT)
        visits_V["level"], visits_V["gap"], visits_V["mean"] = self.total, gap_V, mean_V
        visits_V["moved"] = self.moved(rows_V)
        self.visits_P[rows_V] = visits_V

    def add(self, rows_V: IntArray, successes_V: FloatArray, trials_V: FloatArray) -> None:
        """Adds successes and rollouts to open visits."""
        self.visits_P["successes"][rows_V] += successes_V
        self.visits_P["trials"][rows_V] += trials_V

    def end_step(self, rows_V: IntArray) -> None:
        """Learns from the visits of the step, in any order, and adds one step's drift to the total."""
        visits_V = self.visits_P[rows_V]
        gap_V, mean_V, trials_V = visits_V["gap"], visits_V["mean"], visits_V["trials"]
        information_V = trials_V * mean_V * (1 - mean_V)
        score_V = gap_V * (visits_V["successes"] - trials_V * mean_V + information_V * visits_V["moved"])
        self.score = _MEMORY * self.score + math.fsum(score_V)
        self.information = _MEMORY * self.information + math.fsum(gap_V * gap_V * information_V)
        self.total += self.rate

    def rescale(self, scale: float, shift: float) -> None:
        """Replaces each success u of open visits by scale u + shift, and the means before the visits likewise."""
        trials_P = self.visits_P["trials"]
        self.visits_P["successes"] = np.clip(scale * self.visits_P["successes"] + shift * trials_P, 0.0, trials_P)
        self.visits_P["mean"] = np.clip(scale * self.visits_P["mean"] + shift, 0.0, 1.0)

    def state_dict(self, rows: int) -> dict[str, Any]:
        """Three numbers, and an array with the visits of the first `rows` prompts."""
        visits = self.visits_P[:rows].copy().view(np.float64).reshape(rows, len(_COLUMNS))
        return {"drift": [self.total, self.score, self.information], "visits": visits}

    @classmethod
    def from_state(cls, state: dict[str, Any], rows: int) -> "Drift":
        """The saved drift, or a new one if the state has none. Raises `StateError` if it is damaged."""
        if "drift" not in state:
            return cls(rows)
        try:
            total, score, information = check_array("drift", state["drift"], "three numbers").tolist()
            visits = check_array("visits", state["visits"], "numbers").reshape(rows, len(_COLUMNS))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise StateError(f"The state's drift or its visits are damaged. {error}") from error
        if not (np.isfinite([total, score, information]).all() and information >= 0 and np.isfinite(visits).all()):
            raise StateError(f"The state's drift {state['drift']} or its visits are out of range: it is damaged.")
        drift = cls(rows, total, score, information)
        drift.visits_P = visits.view(_VISIT).reshape(rows)
        return drift


def moved_evidence(
    successes_P: FloatArray, failures_P: FloatArray, moved_P: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Successes and failures after a move of the log-odds of all prompts, shape (P,) each.

    After a rise by d, a failure counts as exp(-d). After a fall by d, a success does. The odds of the evidence thus
    move by d, and its size never grows.

    >>> moved_evidence(np.array([4.0, 4.0]), np.array([4.0, 4.0]), np.log([2.0, 0.5]))
    (array([4., 2.]), array([2., 4.]))
    """
    kept_P = np.exp(-np.abs(moved_P))
    return successes_P * np.where(moved_P < 0, kept_P, 1.0), failures_P * np.where(moved_P > 0, kept_P, 1.0)

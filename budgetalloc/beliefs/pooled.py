"""What all prompts together say about each one: how their success rates spread, and how fast they rise."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.errors import StateError

_START_PROMPTS = 16.0  # the starting prior counts as this many prompts, so that the first few cannot settle it
_MEMORY = 0.99  # share of what was learned about the drift that is kept at a step: about the last 100 steps count
_RIDGE = 1e4  # before any data the drift is 0 +- 0.01 log-odds a step, the inverse root of this
_COLUMNS = _LEVEL, _, _, _, _SUCCESSES, _TRIALS = range(6)  # total at the visit, gap, moved, mean, successes, rollouts

IntArray = NDArray[np.int64]


def pooled_prior(beliefs_P: Beta, start: tuple[float, float]) -> tuple[float, float]:
    """The Beta with the mean and the variance of a rate drawn from a random one of these beliefs.

    Empirical Bayes by moments: refitted at each step from beliefs that contain it, this is an EM iteration. `start`
    takes part as 16 prompts. The order of the prompts does not matter, to the bit.

    >>> solved, hopeless = Beta(np.full(500, 80.0), np.full(500, 0.5)), Beta(np.full(500, 0.5), np.full(500, 80.0))
    >>> pool = Beta(np.r_[solved.alpha_P, hopeless.alpha_P], np.r_[solved.beta_P, hopeless.beta_P])
    >>> a, b = pooled_prior(pool, (0.5, 0.5))
    >>> round(a, 4), round(b, 4)  # a U: nearly all of the pool is solved or hopeless
    (0.0165, 0.0165)
    """
    prior = Beta(np.array([start[0]]), np.array([start[1]]))
    weight = _START_PROMPTS + len(beliefs_P)
    mean = (_sum(beliefs_P.mean) + _START_PROMPTS * float(prior.mean[0])) / weight
    mixed = (_sum(beliefs_P.moment(1, 1)) + _START_PROMPTS * float(prior.moment(1, 1)[0])) / weight  # E[p(1-p)]
    strength = mixed / (mean * (1 - mean) - mixed)  # E[p(1-p)] / Var[p], which is a + b for a Beta
    return mean * strength, (1 - mean) * strength


def _sum(shares_P: FloatArray) -> float:
    """The sum of numbers in [0, 1], to the bit in any order: integers of 2^-40, four times as fast as `math.fsum`."""
    return float(np.rint(shares_P * 2.0**40).astype(np.int64).sum()) * 2.0**-40


class Drift:
    """The common drift of all prompts: by how much the log-odds of success rise at a step.

    The successes s of a visit's n rollouts are compared with the mean m believed before it, `gap` steps after the visit
    before, in which the belief was moved by `moved` log-odds. To first order it should have been moved by
    moved + (s - n m) / (n m (1 - m)). The drift is the ridge regression of that on the gap, with weights n m (1 - m)
    that fade by 0.99 a step. Prompts are named by their rows, and a first visit (gap 0) tells nothing.

    >>> drift = Drift(rows=1000)
    >>> every = np.arange(1000)
    >>> drift.open(every, gap_V=np.full(1000, 10), mean_V=np.full(1000, 0.5))
    >>> drift.add(every, successes_V=np.full(1000, 4.1), trials_V=np.full(1000, 8.0))  # 4 of 8 were expected
    >>> drift.end_step(every)
    >>> round(drift.rate, 4)  # 0.1 / 2 log-odds in 10 steps, a little less for the ridge
    0.0048
    """

    def __init__(self, rows: int = 0, total: float = 0.0, score: float = 0.0, information: float = 0.0) -> None:
        self.total = total  # log-odds risen since the first step
        self.score = score
        self.information = information
        self.visits_P6: FloatArray = np.zeros((rows, len(_COLUMNS)))  # the last visit of each prompt

    @property
    def rate(self) -> float:
        """Log-odds a step, by all that was learned so far."""
        return self.score / (self.information + _RIDGE)

    def reserve(self, rows: int) -> None:
        """Makes room for this many prompts."""
        more = rows - len(self.visits_P6)
        self.visits_P6 = np.concatenate([self.visits_P6, np.zeros((more, len(_COLUMNS)))])

    def carry(self, evidence_V2: FloatArray, rows_V: IntArray) -> FloatArray:
        """The evidence of these rows, moved along since their last visits."""
        return moved_evidence(evidence_V2, self.total - self.visits_P6[rows_V, _LEVEL])

    def open(self, rows_V: IntArray, gap_V: IntArray, mean_V: FloatArray) -> None:
        """A visit begins: steps since the last one (0 if there is none), and the mean believed before it."""
        moved_V, nothing_V = self.total - self.visits_P6[rows_V, _LEVEL], np.zeros(len(rows_V))
        level_V = np.full(len(rows_V), self.total)
        self.visits_P6[rows_V] = np.stack([level_V, gap_V, moved_V, mean_V, nothing_V, nothing_V], axis=1)

    def add(self, rows_V: IntArray, successes_V: FloatArray, trials_V: FloatArray) -> None:
        """Rewards of an open visit."""
        self.visits_P6[rows_V, _SUCCESSES] += successes_V
        self.visits_P6[rows_V, _TRIALS] += trials_V

    def end_step(self, rows_V: IntArray) -> None:
        """Learns from the visits of the step, in any order, and moves all prompts by one step's drift."""
        _, gap_V, moved_V, mean_V, successes_V, trials_V = self.visits_P6[rows_V].T
        information_V = trials_V * mean_V * (1 - mean_V)
        score_V = gap_V * (successes_V - trials_V * mean_V + information_V * moved_V)
        self.score = _MEMORY * self.score + math.fsum(score_V)
        self.information = _MEMORY * self.information + math.fsum(gap_V * gap_V * information_V)
        self.total += self.rate

    def state_dict(self, rows: int) -> dict[str, Any]:
        """Three numbers and one array, for the first rows."""
        return {"drift": [self.total, self.score, self.information], "visits": self.visits_P6[:rows].copy()}

    @classmethod
    def from_state(cls, state: dict[str, Any], rows: int) -> "Drift":
        """The saved drift; one that has not begun to learn if there is none. Raises `StateError` for a damaged one."""
        if "drift" not in state:
            return cls(rows)
        try:
            total, score, information = (float(x) for x in state["drift"])
            visits = np.array(state["visits"], dtype=np.float64).reshape(rows, len(_COLUMNS))
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"The state's drift or its visits are damaged. {error}") from error
        if not (np.isfinite([total, score, information]).all() and information >= 0 and np.isfinite(visits).all()):
            raise StateError(f"The state's drift {state['drift']} or its visits are out of range: it is damaged.")
        drift = cls(rows, total, score, information)
        drift.visits_P6 = visits
        return drift


def moved_evidence(evidence_P2: FloatArray, moved_P: FloatArray) -> FloatArray:
    """Successes and failures after the log-odds of all prompts moved: what the move contradicts fades.

    After a rise by d a failure counts as exp(-d), after a fall by d a success does: the evidence's odds move by d, and
    its size never grows.

    >>> moved_evidence(np.array([[4.0, 4.0], [4.0, 4.0]]), np.log([2.0, 0.5]))
    array([[4., 2.],
           [2., 4.]])
    """
    kept_P: FloatArray = np.exp(-np.abs(moved_P))
    kept_P2 = np.stack([np.where(moved_P < 0, kept_P, 1.0), np.where(moved_P > 0, kept_P, 1.0)], axis=1)
    moved_P2: FloatArray = evidence_P2 * kept_P2
    return moved_P2

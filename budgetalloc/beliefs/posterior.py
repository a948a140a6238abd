"""Beliefs about prompts' success rates: immutable inputs of value functions.

Pass `beta.sample(rng)` for a Thompson draw, `Point(beta.mean)` for the plug-in mean, or the `Beta`
itself for the full posterior.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.ids import blocks
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_array, check_integer, check_rng

FloatArray = NDArray[np.float64]
T = TypeVar("T")
_MOST_CELLS = 200_000_000  # in one table of values, 8 bytes each
_MOST_POWER = 64
_BLOCK_CELLS = 2**17


class Belief(Protocol):
    """A belief about P prompts, each with an unknown success rate p: the interface that value
    functions use."""

    @property
    def spread_P(self) -> FloatArray: ...
    def __len__(self) -> int: ...
    @property
    def mean(self) -> FloatArray: ...
    @property
    def var(self) -> FloatArray: ...
    def all_pass(self, counts_N: ArrayLike) -> FloatArray: ...
    def all_fail(self, counts_N: ArrayLike) -> FloatArray: ...
    def moment(self, i: int, j: int) -> FloatArray: ...
    def tilt(self, i: int, j: int) -> "Belief": ...


def _check(values: ArrayLike, name: str, high: float, prompts: int | None = None) -> FloatArray:
    """The values as an array, of this length if it is given, between 0 and 1, or positive and
    finite if `high` is infinite."""
    copy = not isinstance(values, np.ndarray) or values.flags.writeable
    array = np.atleast_1d(check_array(name, values, "one number per prompt", copy=copy))
    # False for NaN
    sound = (array > 0) & (array < high) if high == np.inf else (array >= 0) & (array <= high)
    if array.ndim != 1 or not sound.all():
        allowed = "positive and finite" if high == np.inf else f"in [0, {high:g}]"
        bad = values if array.ndim != 1 else float(array[~sound][0])
        raise InputError(name, f"must be one-dimensional and {allowed}.", bad)
    if prompts is not None and array.size != prompts:
        wrong = f"has {array.size} entries for {prompts} prompts: give one each."
        raise InputError(name, wrong)
    return array


def unchecked(kind: type[T], **columns: FloatArray) -> T:
    """A `Beta` or `Point` of columns that are known to be valid, which become read-only. The checks
    are skipped, for speed."""
    belief = object.__new__(kind)
    vars(belief).update(columns)
    for column in columns.values():
        column.flags.writeable = False
    return belief


def _spread(spread_P: ArrayLike | None, prompts: int) -> FloatArray:
    if spread_P is None:
        return np.broadcast_to(1.0, prompts)
    return _check(spread_P, "spread_P", 1.0, prompts)


@dataclass(frozen=True, eq=False)
class Beta:
    """Beta(alpha, beta) beliefs about P prompts.

    Args:
        alpha_P, beta_P: Pseudo-successes and pseudo-failures, shape (P,) each, positive.
        spread_P: The variance of each prompt's successes as a share of p(1-p), shape (P,), in [0,
            1]. It is 1 by default, as for successes of 0 and 1, and 0 if every success is 0.5.

    Raises:
        InputError: a parameter is not positive and finite, a spread lies outside [0, 1], or the
            shapes differ.

    >>> belief = Beta([0.5, 4.5], [0.5, 0.5])
    >>> belief.mean
    array([0.5, 0.9])
    >>> belief.all_pass([0, 1, 2])  # E[p^n], one row per prompt
    array([[1.   , 0.5  , 0.375],
           [1.   , 0.9  , 0.825]])
    """

    alpha_P: FloatArray
    beta_P: FloatArray
    spread_P: FloatArray = None  # type: ignore[assignment]  # an array after __post_init__

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha_P", _check(self.alpha_P, "alpha_P", np.inf))
        object.__setattr__(self, "beta_P", _check(self.beta_P, "beta_P", np.inf, len(self)))
        object.__setattr__(self, "spread_P", _spread(self.spread_P, len(self)))

    def __len__(self) -> int:
        return int(self.alpha_P.size)

    @property
    def mean(self) -> FloatArray:
        """E[p], shape (P,)."""
        return self.alpha_P / self.mass

    @cached_property
    def mass(self) -> FloatArray:
        """alpha + beta, the rollouts that the belief weighs, shape (P,), read-only."""
        mass_P = self.alpha_P + self.beta_P
        mass_P.flags.writeable = False
        return mass_P

    @property
    def var(self) -> FloatArray:
        """Var[p], shape (P,)."""
        mass_P = self.mass
        return self.alpha_P * self.beta_P / (mass_P**2 * (mass_P + 1))

    def all_pass(self, counts_N: ArrayLike) -> FloatArray:
        """E[p^n], the chance that all of n rollouts succeed, shape (P, N)."""
        return _products(self.alpha_P, self.mass, counts_N)

    def all_fail(self, counts_N: ArrayLike) -> FloatArray:
        """E[(1-p)^n], the chance that all of n rollouts fail, shape (P, N)."""
        return _products(self.beta_P, self.mass, counts_N)

    def moment(self, i: int, j: int) -> FloatArray:
        """E[p^i (1-p)^j] for small integers i and j, shape (P,).

        >>> Beta([1.0], [1.0]).moment(1, 1)  # E[p(1-p)] of a uniform p is 1/6
        array([0.16666667])
        """
        _check_powers(i, j)
        result_P, mass_P = np.ones(len(self)), self.mass
        for k in range(i):
            result_P *= (self.alpha_P + k) / (mass_P + k)
        for k in range(j):
            result_P *= (self.beta_P + k) / (mass_P + i + k)
        return result_P

    def tilt(self, i: int, j: int) -> "Beta":
        """The belief reweighted by p^i (1-p)^j: E[p^i (1-p)^j f(p)] = moment(i, j) *
        E_tilted[f(p)]."""
        _check_powers(i, j)
        return Beta(self.alpha_P + i, self.beta_P + j, self.spread_P)

    def sample(self, rng: np.random.Generator) -> "Point":
        """One draw of every prompt's rate, for Thompson sampling. The spread stays."""
        check_rng(rng)
        return unchecked(Point, p_P=rng.beta(self.alpha_P, self.beta_P), spread_P=self.spread_P)

    def take(self, index: ArrayLike) -> "Beta":
        """The beliefs at these indices, which may repeat. `take(group_R)` gives one belief per
        rollout."""
        at, prompts = _integers(index), self.alpha_P.size
        if at is None or ((at < 0) | (at >= prompts)).any():
            raise InputError("index", f"give a list of places from 0 to {prompts - 1}.", index)
        alpha_P, beta_P, spread_P = self.alpha_P[at], self.beta_P[at], self.spread_P[at]
        return unchecked(Beta, alpha_P=alpha_P, beta_P=beta_P, spread_P=spread_P)


@dataclass(frozen=True, eq=False)
class Point:
    """Success rates that are taken as known.

    Args:
        p_P: Rates in [0, 1], shape (P,).
        spread_P: As in `Beta`.

    Raises:
        InputError: a rate or a spread lies outside [0, 1], or the shapes differ.

    >>> Point([0.0, 0.25, 1.0]).all_fail([1, 2])
    array([[1.    , 1.    ],
           [0.75  , 0.5625],
           [0.    , 0.    ]])
    """

    p_P: FloatArray
    spread_P: FloatArray = None  # type: ignore[assignment]  # an array after __post_init__

    def __post_init__(self) -> None:
        object.__setattr__(self, "p_P", _check(self.p_P, "p_P", 1.0))
        object.__setattr__(self, "spread_P", _spread(self.spread_P, len(self)))

    def __len__(self) -> int:
        return int(self.p_P.size)

    @property
    def mean(self) -> FloatArray:
        """The rates, shape (P,)."""
        return self.p_P

    @property
    def var(self) -> FloatArray:
        """Zero, shape (P,)."""
        return np.zeros(len(self))

    def all_pass(self, counts_N: ArrayLike) -> FloatArray:
        """p^n, shape (P, N)."""
        return _products(self.p_P, None, counts_N)

    def all_fail(self, counts_N: ArrayLike) -> FloatArray:
        """(1-p)^n, shape (P, N)."""
        return _products(1 - self.p_P, None, counts_N)

    def moment(self, i: int, j: int) -> FloatArray:
        """p^i (1-p)^j, shape (P,)."""
        _check_powers(i, j)
        moment_P = 1 - self.p_P
        moment_P **= j
        moment_P *= self.p_P if i == 1 else self.p_P**i
        return moment_P

    def tilt(self, i: int, j: int) -> "Point":
        """The belief itself, because reweighting does not change a known rate."""
        return self


def _integers(values: ArrayLike) -> IntArray | None:
    """The values as a list of integers, None if they are none."""
    try:
        array = np.atleast_1d(np.asarray(values))
    except ValueError:  # rows of unequal lengths
        return None
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        return None
    return array.astype(np.int64, copy=False)


def check_counts(counts_N: ArrayLike, prompts: int = 1) -> IntArray:
    """Counts of rollouts, shape (N,), for which a table of values of this many prompts fits into
    memory.

    Raises:
        InputError: a count is not an integer of at least 0, or the table is too large.
    """
    counts = _integers(counts_N)
    if counts is None or (counts < 0).any():
        raise InputError("counts_N", "must be a list of non-negative integers.", counts_N)
    most = _MOST_CELLS // max(prompts, 1)
    if counts.max(initial=0) > most:
        what = f"too many to price for {prompts} prompts. Use counts up to {most}."
        raise InputError("counts_N", what, counts_N)
    return counts


def check_belief(belief: Any) -> None:
    """Raises `InputError` unless this is a belief such as a `Beta` or a `Point`."""
    has = (hasattr(belief, name) for name in ("all_pass", "all_fail", "moment"))
    if isinstance(belief, type) or not all(has):
        what = "give a belief, such as ba.Beta([1.0], [1.0]) or ba.Point([0.5])."
        raise InputError("belief", what, belief)


def _check_powers(i: Any, j: Any) -> None:
    check_integer("i", i, 0, _MOST_POWER)
    check_integer("j", j, 0, _MOST_POWER)


def _products(a_P: FloatArray, mass_P: FloatArray | None, counts_N: ArrayLike) -> FloatArray:
    """The chance that n rollouts are alike for each count n, shape (P, N): (a/m) ((a+1)/(m+1)) ...
    with n factors, or a^n without a mass m, which is faster than the power function.

    Internally, counts are rows, which keeps memory contiguous.
    """
    prompts = len(a_P)
    counts = check_counts(counts_N, prompts)
    j = np.arange(counts.max(initial=0), dtype=np.float64)[:, None]
    products_NP = np.empty((counts.size, prompts))
    for at in blocks(prompts, size=max(_BLOCK_CELLS // max(len(j), 1), 1)):
        factors_JP = a_P[at] + 0 * j if mass_P is None else (a_P[at] + j) / (mass_P[at] + j)
        for k in range(1, len(j)):  # faster than np.cumprod down the rows
            factors_JP[k] *= factors_JP[k - 1]
        products_NP[:, at] = factors_JP[counts - 1] if len(j) else 1.0
    products_NP[counts == 0] = 1.0
    return products_NP.T

"""Estimators keep the belief about each prompt and learn from rewards. `BetaEstimator` counts each
prompt's own history."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.ids import Id, blocks, check_ids, factorize, first_places, rows_to_read
from budgetalloc.beliefs.posterior import Beta, FloatArray, unchecked
from budgetalloc.beliefs.rewards import EQUAL, check_rewards
from budgetalloc.beliefs.state import Stateful, Table, check_state
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, StateError, check_number, is_number, keywords, short_repr

STILL = 4
"""Rollouts in a row with equal successes after which those of a prompt count as constant."""
_KEPT = 0.9  # share of earlier first visits that is kept at a step with first visits


def summed(group_R: IntArray, success_R: FloatArray) -> tuple[IntArray, FloatArray]:
    """The groups that have a success, in the order of their first, and the evidence about each: its
    successes, its failures, and the sum of u(1-u) over its successes u, shape (G, 3).

    >>> summed(np.array([0, 1, 0, 2]), np.array([1.0, 0.5, 0.0, np.nan]))
    (array([0, 1]), array([[1.  , 1.  , 0.  ],
           [0.5 , 0.5 , 0.25]]))
    """
    scored_R = ~np.isnan(success_R)
    found_G, at_K = first_places(group_R[scored_R])
    u_K = success_R[scored_R]
    successes_G, trials_G = np.bincount(at_K, u_K), np.bincount(at_K).astype(np.float64)
    graded_G = np.bincount(at_K, u_K * (1 - u_K))
    return found_G, np.column_stack([successes_G, trials_G - successes_G, graded_G])


def spread(alpha_P: FloatArray, beta_P: FloatArray, graded_P: FloatArray) -> FloatArray:
    """The variance of successes as a share of p(1-p), in [0, 1]: 1 - n d / (a b) with n = a + b.

    Args:
        alpha_P, beta_P: a and b, the parameters of the beliefs. The prior in them counts as
            successes of 0 and 1.
        graded_P: d, the sums of u(1-u) over the successes u. If they are all 0 or 1, the spread is
            exactly 1.

    >>> spread(np.array([32.5, 32.5]), np.array([32.5, 32.5]), np.array([0.0, 16.0])).round(3)
    array([1.   , 0.015])
    """
    spread_P, at_K = np.ones(len(graded_P)), np.flatnonzero(graded_P)
    alpha_K, beta_K = alpha_P[at_K], beta_P[at_K]
    spread_K = 1.0 - graded_P[at_K] * (alpha_K + beta_K) / (alpha_K * beta_K)
    spread_P[at_K] = np.clip(spread_K, 0.0, 1.0)
    return spread_P


class Estimator(Stateful, ABC):
    """Keeps a Beta belief about each prompt's success rate: `BetaEstimator` and
    `TrackingEstimator`."""

    saved: ClassVar[Sequence[str]] = ("step", "_prompts")
    step: int
    """Number of steps that have ended."""
    prior_now: tuple[float, float]
    """Pseudo-successes and pseudo-failures of the prior of a prompt without features, in the
    current step."""
    texts: Mapping[Id, int] = MappingProxyType({})
    """Hashes of the texts of prompts that have names, kept by adapters of trainers. A belief is
    about a name and a text."""
    # With the step of the last visit in the column "last", and in the column "still" the last
    # success and how many rollouts in a row had it.
    _prompts: Table
    _format: str  # of the state

    def __len__(self) -> int:
        """Number of prompts seen at least once."""
        return len(self._prompts)

    def ids(self) -> list[Id]:
        """The prompts seen at least once."""
        return list(self._prompts.ids)

    def cold(self, ids_P: Iterable[Any]) -> NDArray[np.bool_]:
        """Which prompts were never seen, shape (P,). Their belief is the prior."""
        return self._prompts.find(ids_P) < 0

    def constant(self, ids_P: Iterable[Any]) -> FloatArray:
        """The success of the prompts whose last rollouts, at least `STILL`, all had it, shape (P,);
        NaN for others.

        >>> estimator = BetaEstimator()
        >>> estimator.observe(["a"] * 4 + ["b"] * 4, [0.3] * 4 + [0.3, 0.3, 0.3, 0.4])
        >>> estimator.constant(["a", "b", "new"])
        array([0.3, nan, nan])
        """
        at_P = self._prompts.find(ids_P)
        if not len(self._prompts):
            return np.full(len(at_P), np.nan)
        success_P, rollouts_P = self._prompts["still"][at_P].T
        return np.where((at_P >= 0) & (rollouts_P >= STILL), success_P, np.nan)

    def _count_still(self, at_P: IntArray, added_P3: FloatArray) -> None:
        """Counts rollouts in a row with equal successes, from the evidence of a step (`summed`)."""
        successes_P, failures_P, graded_P = added_P3.T
        n_P = successes_P + failures_P
        mean_P = successes_P / n_P
        apart_P = successes_P - graded_P - n_P * mean_P**2  # the sum of squared deviations
        still_P2 = self._prompts["still"]
        before_P2 = still_P2[at_P]
        goes_on_P = np.abs(before_P2[:, 0] - mean_P) < EQUAL
        run_P = np.where(goes_on_P, before_P2[:, 1], 0.0) + n_P
        run_P[apart_P > EQUAL**2] = 0.0
        still_P2[at_P] = np.column_stack([mean_P, run_P])

    @abstractmethod
    def belief(self, ids_P: Iterable[Any]) -> Beta:
        """The current belief about these prompts, shape (P,); ids may repeat, for example one id
        per rollout."""

    @abstractmethod
    def prior_of(self, ids_P: Sequence[Id]) -> tuple[FloatArray, FloatArray]:
        """Pseudo-successes and pseudo-failures of the prior that each prompt's belief contains,
        shape (P,) each."""

    @abstractmethod
    def baseline_belief(
        self,
        ids_G: Sequence[Id],
        group_R: IntArray,
        success_R: FloatArray,
        prior_share: float = 1.0,
    ) -> Beta:
        """The belief about each rollout's prompt for a baseline, shape (R,). It does not depend on
        the prompt's own rollouts in this step, but may have learned from those of other prompts.
        Call it before the step is observed.

        Args:
            ids_G: The prompts of the step.
            group_R: The index in `ids_G` of each rollout's prompt, shape (R,).
            success_R: Successes of the step in [0, 1], NaN for none, shape (R,).
            prior_share: The share of its mass that a fixed prior keeps
                (`expected_reward.prior_share`).
        """

    def observe(self, ids_R: Iterable[Any], success_R: ArrayLike) -> None:
        """Adds successes, one per rollout, to the current step. NaN and None are no evidence.
        `tick` ends the step.

        Args:
            ids_R: The prompt of each rollout, shape (R,).
            success_R: Successes in [0, 1], shape (R,).
        """
        ids = check_ids(ids_R, "ids_R")
        success = check_rewards(success_R, len(ids), "success_R")
        self.learn(*factorize(ids), success)

    @abstractmethod
    def learn(self, ids_G: Sequence[Id], group_R: IntArray, success_R: FloatArray) -> None:
        """As `observe`, unchecked: the distinct prompts, the index in `ids_G` of each rollout's
        prompt, and successes in [0, 1] or NaN."""

    @abstractmethod
    def tick(self) -> None:
        """Ends the current step."""

    def state_dict(self) -> dict[str, Any]:
        return {"beliefs": self._format} | super().state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        check_state(state)
        saved = state.get("beliefs")
        if not isinstance(saved, str) or saved != self._format:
            raise StateError(
                f"The state holds beliefs={short_repr(saved)}, expected "
                f"{self._format!r}: it was written by another estimator or another version of "
                "budgetalloc. Load it into the policy that wrote it."
            )
        super().load_state_dict(state)

    def check_restored(self) -> None:
        if (self._prompts["last"] > self.step).any():
            raise InputError(f"visits outside steps 0 to {self.step}")


@keywords
class BetaEstimator(Estimator):
    """A Beta posterior of each prompt's success rate. Old evidence is discounted, because the
    language model changes.

    A prompt's belief is Beta(prior[0] + s, prior[1] + f), with s and f its discounted successes and
    failures. A visit multiplies them by `discount` before it adds the new ones. A step without a
    visit multiplies them by `idle`. A graded success in [0, 1] counts as a fraction of a success.
    VADE (arXiv 2511.18902) uses discount 0.2 and idle 0.999.

    The estimator also keeps the spread of graded successes, because a prompt whose success is
    always 0.5 is never mixed. For the belief Beta(a, b), `spread_P` is 1 - n d / (a b), with n = a
    + b and d the discounted sum of u(1-u) over successes u. It is the variance of the successes as
    a share of p(1-p). The prior counts as successes of 0 and 1.

    Prompts share nothing here. `TrackingEstimator` learns what they have in common.

    Args:
        prior: Pseudo-successes and pseudo-failures of an unseen prompt, both positive.
        discount: Share of the evidence kept at a visit, in [0, 1].
        idle: Share of the evidence kept at a step without a visit, in (0, 1].

    Raises:
        InputError: a parameter out of range; ids and successes of different lengths; a success
            outside [0, 1].

    >>> estimator = BetaEstimator(prior=(0.5, 0.5), discount=0.9)
    >>> estimator.observe(["a"] * 4, [1, 1, 1, 0]); estimator.tick()
    >>> estimator.observe(["a"] * 2, [0.5, float("nan")]); estimator.tick()  # NaN is no evidence
    >>> belief = estimator.belief(["a", "b"])
    >>> belief.alpha_P, belief.beta_P  # of "a": 0.5 + 0.9 * 3 + 0.5 and 0.5 + 0.9 * 1 + 0.5
    (array([3.7, 0.5]), array([1.9, 0.5]))
    >>> estimator.cold(["a", "b"])
    array([False,  True])
    """

    saved = (*Estimator.saved, "first_visits", "_seen_before")
    _format = "beta 4"

    def __init__(
        self, *, prior: tuple[float, float] = (0.5, 0.5), discount: float = 1.0, idle: float = 1.0
    ) -> None:
        is_pair = isinstance(prior, (tuple, list, np.ndarray)) and len(prior) == 2
        if not is_pair or not all(is_number(x) and x > 0 for x in prior):
            raise InputError("prior", "give two positive numbers, such as (0.5, 0.5).", prior)
        self.prior = (float(prior[0]), float(prior[1]))
        self.discount = check_number("discount", discount, 0, 1)
        self.idle = check_number("idle", idle, 0, 1, without=(0,))
        self.step = 0
        self.prior_now = self.prior
        self.first_visits = (0.0, 0.0)
        """Successes and rollouts of the first visits of prompts in about the last ten steps."""
        self._seen_before = 0  # prompts; later ones are on their first visit
        # Evidence as of `summed`, discounted at the last visit.
        self._prompts = Table({"evidence": np.zeros(3), "last": 0, "still": np.zeros(2)})

    def __repr__(self) -> str:
        return f"BetaEstimator(prior={self.prior!r}, discount={self.discount}, idle={self.idle})"

    def belief(self, ids_P: Iterable[Any]) -> Beta:
        known = len(self._prompts)
        rows_K, at_P = rows_to_read(self._prompts.find(ids_P), known)
        rows = known if isinstance(rows_K, slice) else len(rows_K)
        # The last row is the prior, because an unseen prompt has the place -1.
        known_K3 = np.zeros((rows + 1, 3))
        for block in blocks(rows):
            at = block if isinstance(rows_K, slice) else rows_K[block]
            known_K3[block] = self._carried(at)
        known_K3[:, :2] += self.prior_now
        spread_P = np.broadcast_to(1.0, at_P.size)
        if known_K3[:, 2].any():
            spread_P = spread(*known_K3.T).take(at_P)
        # both parameters at once, because each look-up misses the cache
        of_P3 = known_K3.take(at_P, axis=0)
        return unchecked(Beta, alpha_P=of_P3[:, 0], beta_P=of_P3[:, 1], spread_P=spread_P)

    def prior_of(self, ids_P: Sequence[Id]) -> tuple[FloatArray, FloatArray]:
        """The prior of each prompt: the same for all."""
        a, b = self.prior_now
        return np.full(len(ids_P), a), np.full(len(ids_P), b)

    def baseline_belief(
        self,
        ids_G: Sequence[Id],
        group_R: IntArray,
        success_R: FloatArray,
        prior_share: float = 1.0,
    ) -> Beta:
        """The belief about each rollout's prompt, with the recent mean success of first visits as
        the prior's mean. Arguments as in `Estimator`.

        In a pool of hard prompts, a prior mean of 1/2 would give nearly every rollout of a cold
        prompt the advantage -a / (a + b), with Beta(a, b) the prior. The prior's mean therefore
        becomes (a + S + s) / (a + b + N + n), and its mass is `prior_share` of a + b. S and N are
        `first_visits`, and s and n the successes and rollouts of the other cold prompts of this
        step. A prompt's own rollouts are left out, which keeps the baseline independent of them.

        >>> estimator = BetaEstimator()
        >>> estimator.observe(["a"], [1]); estimator.tick()
        >>> success_R, group_R = np.array([1.0, 0.0, 1.0]), np.arange(3)
        >>> estimator.baseline_belief(["x", "y", "a"], group_R, success_R).mean
        array([0.5       , 0.83333333, 0.8125    ])

        These are 1.5/3, 2.5/3 and (1 + 2.5/4) / 2.
        """
        belief_R, cold_R = self.belief(ids_G).take(group_R), self.cold(ids_G)[group_R]
        counted_R = cold_R & ~np.isnan(success_R)
        successes_G = np.bincount(group_R, np.where(counted_R, success_R, 0.0))
        failures_G = np.bincount(group_R, counted_R) - successes_G
        seen, trials = self.first_visits
        passed_R = seen + (successes_G.sum() - successes_G)[group_R]
        failed_R = trials - seen + (failures_G.sum() - failures_G)[group_R]
        # below 0 by rounding
        passed_R, failed_R = np.maximum(passed_R, 0.0), np.maximum(failed_R, 0.0)
        a, b = self.prior_now
        share_R = prior_share * (a + b) / (a + b + passed_R + failed_R)
        return unchecked(
            Beta,
            alpha_P=belief_R.alpha_P - a + share_R * (a + passed_R),
            beta_P=belief_R.beta_P - b + share_R * (b + failed_R),
            spread_P=np.broadcast_to(1.0, len(success_R)),
        )

    def _carried(self, rows: IntArray | slice, share: float = 1.0) -> FloatArray:
        """A share of the evidence in these rows, after idle steps."""
        evidence_K3: FloatArray = self._prompts["evidence"][rows]
        if self.idle == 1:
            return evidence_K3 * share if share < 1 else evidence_K3
        # The step of the visit and the current step are not idle steps.
        steps_K = np.maximum(self.step - self._prompts["last"][rows] - 1, 0)
        longest = int(steps_K.max(initial=0))
        if longest < steps_K.size:  # fewer powers than prompts
            kept_K = (share * self.idle ** np.arange(longest + 1))[steps_K]
        else:
            kept_K = share * self.idle**steps_K
        carried_K3: FloatArray = evidence_K3 * kept_K[:, None]
        return carried_K3

    def learn(self, ids_G: Sequence[Id], group_R: IntArray, success_R: FloatArray) -> None:
        """As `Estimator.learn`. Several calls within one step are one visit: only the first call
        discounts earlier evidence."""
        at_K, added_P3 = summed(group_R, success_R)
        if not at_K.size:
            return
        at_P = self._prompts.add([ids_G[at] for at in at_K.tolist()])
        evidence, last = self._prompts["evidence"], self._prompts["last"]
        returning = at_P[last[at_P] < self.step]
        evidence[returning] = self._carried(returning, self.discount)
        last[at_P] = self.step
        evidence[at_P] += added_P3
        self._count_still(at_P, added_P3)

    def tick(self) -> None:
        if self._seen_before < (known := len(self._prompts)):
            first_P3 = self._prompts["evidence"][self._seen_before :]
            seen, trials = self.first_visits
            successes = _KEPT * seen + math.fsum(first_P3[:, 0])
            failures = _KEPT * (trials - seen) + math.fsum(first_P3[:, 1])
            self.first_visits = (successes, successes + failures)
            self._seen_before = known
        self.step += 1

    def check_restored(self) -> None:
        super().check_restored()
        evidence, (seen, trials) = self._prompts["evidence"], self.first_visits
        # u(1-u) is at most u, and 1 - u
        if (evidence[:, 2] > evidence[:, :2].min(axis=1) + 1e-6).any():
            raise InputError("graded successes that do not fit the evidence")
        if self._seen_before > len(self) or not 0 <= seen <= trials:
            raise InputError(f"first visits {self.first_visits} of {self._seen_before} prompts")

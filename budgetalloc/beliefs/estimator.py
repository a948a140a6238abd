"""The estimator: learns the belief about each prompt from its rewards."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.blocks import blocks
from budgetalloc.beliefs.cold_start import KEPT, with_first_visit_prior
from budgetalloc.beliefs.graded_success import spread
from budgetalloc.beliefs.ids import Id, check_ids
from budgetalloc.beliefs.interface import Estimator, summed
from budgetalloc.beliefs.pool import Index, rows_to_read, with_room
from budgetalloc.beliefs.posterior import Beta, FloatArray, constant, unchecked
from budgetalloc.beliefs.state import arrays_in, check_state, distinct_ids, reading
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, StateError, check_number, is_number, shown

__all__ = ["STATE_VERSION", "BetaEstimator"]

STATE_VERSION = 2


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

    def __init__(
        self, *, prior: tuple[float, float] = (0.5, 0.5), discount: float = 1.0, idle: float = 1.0
    ) -> None:
        if not _is_pair(prior):
            raise InputError(
                f"prior={shown(prior)}: give two positive numbers, such as (0.5, 0.5)."
            )
        self.prior = (float(prior[0]), float(prior[1]))
        self.discount = check_number("discount", discount, 0, 1)
        self.idle = check_number("idle", idle, 0, 1, without=(0,))
        self.step = 0
        # discounted successes and rollouts, for `with_first_visit_prior`
        self.first_visits = (0.0, 0.0)
        # prompts seen before the current step; later prompts are on their first visit
        self._seen_before = 0
        self.prior_now = self.prior
        self._index = Index()
        self._successes_P: FloatArray = np.zeros(0)  # discounted, at the last visit
        self._failures_P: FloatArray = np.zeros(0)
        # discounted sum of u(1-u), 0 for successes of 0 and 1
        self._graded_P: FloatArray = np.zeros(0)
        # step of the last visit, -1 before the first
        self._last_P: IntArray = np.zeros(0, dtype=np.int64)

    def __repr__(self) -> str:
        return f"BetaEstimator(prior={self.prior!r}, discount={self.discount}, idle={self.idle})"

    def belief(self, ids_P: Iterable[Any]) -> Beta:
        """The current belief about these prompts, shape (P,); ids may repeat, for example one id
        per rollout."""
        rows_K, at_P = rows_to_read(self._index.find(ids_P), len(self))
        rows = len(self) if isinstance(rows_K, slice) else len(rows_K)
        # The last row is the prior, because an unseen prompt has the place -1.
        known_K2, graded_K = np.empty((rows + 1, 2)), np.zeros(rows)
        for block in blocks(rows):
            successes, failures, graded = self._carried(
                block if isinstance(rows_K, slice) else rows_K[block]
            )
            np.add(successes, self.prior_now[0], out=known_K2[block, 0])
            np.add(failures, self.prior_now[1], out=known_K2[block, 1])
            if graded.any():
                graded_K[block] = graded
        known_K2[-1] = self.prior_now
        checked = Beta(constant(known_K2[:, 0]), constant(known_K2[:, 1]))
        spread_P = np.broadcast_to(1.0, at_P.size)
        if graded_K.any():
            spread_P = spread(checked.alpha_P, checked.beta_P, np.append(graded_K, 0.0)).take(at_P)
        # both parameters at once, because each look-up misses the cache
        of_P2 = known_K2.take(at_P, axis=0)
        return unchecked(Beta, alpha_P=of_P2[:, 0], beta_P=of_P2[:, 1], spread_P=spread_P)

    def prior_of(self, ids_P: Iterable[Any]) -> tuple[FloatArray, FloatArray]:
        """The prior of each prompt: the same for all."""
        prompts = len(check_ids(ids_P, "ids_P"))
        return np.full(prompts, self.prior_now[0]), np.full(prompts, self.prior_now[1])

    def baseline_belief(
        self, ids_G: list[Id], group_R: IntArray, success_R: FloatArray, prior_share: float = 1.0
    ) -> Beta:
        """The belief about each rollout's prompt, with the recent mean success of first visits as
        the prior's mean (`cold_start.with_first_visit_prior`). Arguments as in `Estimator`."""
        belief_R, cold_R = self.belief(ids_G).take(group_R), self.cold(ids_G)[group_R]
        return with_first_visit_prior(
            belief_R, self.prior_now, cold_R, success_R, group_R, self.first_visits, prior_share
        )

    def _carried(
        self, at_P: IntArray | slice, share: float = 1.0
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """A share of the successes, failures and sums of u(1-u) in these rows, after idle steps."""
        successes_P, failures_P, graded_P = (
            self._successes_P[at_P],
            self._failures_P[at_P],
            self._graded_P[at_P],
        )
        if self.idle < 1:
            # The step of the visit and the current step are not idle steps.
            idle_steps_P = np.maximum(self.step - self._last_P[at_P] - 1, 0)
            longest = int(idle_steps_P.max(initial=0))
            if longest < idle_steps_P.size:  # fewer powers than prompts
                kept_P = (share * self.idle ** np.arange(longest + 1))[idle_steps_P]
            else:
                kept_P = share * self.idle**idle_steps_P
            successes_P, failures_P, graded_P = (
                successes_P * kept_P,
                failures_P * kept_P,
                graded_P * kept_P,
            )
        elif share < 1:
            successes_P, failures_P, graded_P = (
                successes_P * share,
                failures_P * share,
                graded_P * share,
            )
        return successes_P, failures_P, graded_P

    def observe(self, ids_R: Iterable[Any], success_R: ArrayLike) -> None:
        """Adds successes, one per rollout, to the current step. NaN and None are no evidence.
        `tick` ends the step.

        Several calls within one step are one visit: only the first call discounts earlier evidence.

        Args:
            ids_R: The prompt of each rollout, shape (R,).
            success_R: Successes in [0, 1], shape (R,).
        """
        ids_P, successes_P, trials_P, graded_P = summed(ids_R, success_R)
        if not ids_P:
            return
        at_P = self._index.add(ids_P)
        self._successes_P, self._failures_P, self._graded_P = (
            with_room(values_P, len(self))
            for values_P in (self._successes_P, self._failures_P, self._graded_P)
        )
        self._last_P = with_room(self._last_P, len(self), -1)
        returning = at_P[self._last_P[at_P] < self.step]
        carried_successes, carried_failures, carried_graded = self._carried(
            returning, self.discount
        )
        self._successes_P[returning], self._failures_P[returning] = (
            carried_successes,
            carried_failures,
        )
        self._graded_P[returning] = carried_graded
        self._last_P[at_P] = self.step
        self._successes_P[at_P] += successes_P
        self._failures_P[at_P] += trials_P - successes_P
        self._graded_P[at_P] += graded_P

    def tick(self) -> None:
        """Ends the current step."""
        if self._seen_before < len(self):
            first = slice(self._seen_before, len(self))
            successes = KEPT * self.first_visits[0] + math.fsum(self._successes_P[first])
            failures = KEPT * (self.first_visits[1] - self.first_visits[0]) + math.fsum(
                self._failures_P[first]
            )
            self.first_visits, self._seen_before = (successes, successes + failures), len(self)
        self.step += 1

    def state_dict(self) -> dict[str, Any]:
        """Everything learned, without settings. `load_state_dict` restores it to the bit."""
        n = len(self)
        return {
            "version": STATE_VERSION,
            "step": self.step,
            "ids": self.ids(),
            "evidence": np.stack([self._successes_P[:n], self._failures_P[:n]], axis=1),
            "graded": self._graded_P[:n].copy(),
            "last": self._last_P[:n].copy(),
            "earned": list(self.first_visits),
            "met": self._seen_before,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replaces what was learned by a saved state.

        Raises:
            StateError: the state does not fit. Nothing has changed then.
        """
        check_state(state)
        if not np.array_equal(state.get("version", 0), STATE_VERSION):
            raise StateError(
                f"The state has version {shown(state.get('version'))}, and this budgetalloc reads "
                "version "
                f"{STATE_VERSION} of BetaEstimator: load it with the version and the policy that "
                "wrote it."
            )
        with reading("beliefs"):
            ids = distinct_ids(state["ids"])
            shapes = {"evidence": (len(ids), 2), "graded": (len(ids),), "last": (len(ids),)}
            shapes |= {"step": (), "met": (), "earned": (2,)}
            saved = arrays_in(state, shapes, whole=("last", "step", "met"))
            evidence, graded, last, step, met, earned = saved.values()
            if (evidence < 0).any():
                raise InputError("negative evidence")
            # u(1-u) is at most u, and 1 - u
            if not ((graded >= 0) & (graded <= evidence.min(axis=1) + 1e-6)).all():
                raise InputError("graded successes that do not fit the evidence")
            if not (0 <= met <= len(ids) and 0 <= earned[0] <= earned[1]):
                raise InputError(f"first visits of {met} prompts, {earned}, out of range")
            if step < 0 or ((last < 0) | (last > step)).any():
                raise InputError(f"visits outside steps 0 to {step}")
        self.step, self._seen_before, self.first_visits = (
            int(step),
            int(met),
            (float(earned[0]), float(earned[1])),
        )
        self._index = Index(ids)
        self._successes_P, self._failures_P = evidence.T.copy()
        self._graded_P, self._last_P = graded, last.astype(np.int64)


def _is_pair(prior: Any) -> bool:
    return (
        isinstance(prior, (tuple, list, np.ndarray))
        and len(prior) == 2
        and all(is_number(x) and x > 0 for x in prior)
    )

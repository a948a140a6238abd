"""An estimator that follows the language model: a regression that all prompts share, and each
prompt's own evidence."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.features import Features
from budgetalloc.beliefs.graded_success import spread
from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.interface import Estimator, summed
from budgetalloc.beliefs.pool import Index, with_room
from budgetalloc.beliefs.posterior import Beta, FloatArray, constant, unchecked
from budgetalloc.beliefs.regression import fitted, left_out_means, odds_at
from budgetalloc.beliefs.state import arrays_in, check_state, distinct_ids, reading
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, StateError, check_type, shown

__all__ = ["MASSES", "NOISES", "TrackingEstimator"]

NOISES = (0.0, 0.002, 0.01, 0.05, 0.3)
"""Candidates for the variance that a prompt's own log-odds gain per step."""
MASSES = (0.01, 0.03, 0.1, 0.3, 0.6, 2.0, 6.0, 20.0)
"""Candidates for the mass of a prompt's prior, in rollouts."""
_START = (2, 4)  # the first noise and mass
_KEPT = 0.95  # share of the log-likelihoods of candidates that is kept at a step
_VARIANCE = 4.0  # of each weight before the first rewards
# variance gained per step by the intercept and by the other weights
_LEVEL_NOISE, _WEIGHT_NOISE = 0.01, 0.01
_VERSION = 1


class TrackingEstimator(Estimator):
    """A Beta posterior of each prompt's success rate that follows the language model while it
    changes.

    The prior of a prompt is Beta(M m, M (1-m)), with m the mean success that a logistic regression
    predicts from the prompt's features x: log(m / (1-m)) = w0 + w . x. All prompts share the
    weights. They follow a random walk, and each step moves them by one update of an extended Kalman
    filter (`fitted`), to which each prompt contributes what its belief did not predict. Without
    `features` there is only w0, the level of all prompts.

    Evidence moves with the regression: if a prompt's predicted log-odds rise by d after a visit, so
    do those of the belief, and the information of the evidence stays. The belief about a prompt
    without any new visit therefore follows the prompts that resemble it. The evidence also fades,
    by a random walk of the prompt's own log-odds with variance q per step: n rollouts become n / (1
    + q t n p (1-p)) after t steps.

    M and q are learned. At each step, every pair of candidates predicts the outcomes, and the pair
    with the highest log-likelihood over about the last 20 steps is used. If features are
    uninformative, M stays small and they hardly matter.

    Args:
        features: Features of the prompts, or None.

    Raises:
        InputError: not features; in `observe`, ids and successes of different lengths, or a success
            outside [0, 1].

    >>> estimator = TrackingEstimator()
    >>> for passed in (0, 2, 4, 6, 8):  # of 8, in each of 20 prompts; later, the others are not visited
    ...     seen = range(20) if passed == 0 else range(10)
    ...     estimator.observe(np.repeat(seen, 8), np.tile(np.arange(8) < passed, len(seen))); estimator.tick()
    >>> estimator.belief([0, 19, "new"]).mean.round(1)  # all follow the rise
    array([0.9, 1. , 1. ])
    """

    def __init__(self, features: Features | None = None) -> None:
        check_type("features", features, (Features, type(None)), "budgetalloc.Features or None")
        self.features = features
        self.step = 0
        self._index = Index()
        self._last_P: IntArray = np.zeros(0, dtype=np.int64)  # step of the last visit
        weights = 1 + (0 if features is None else features.count)
        self._weights_K = np.zeros(weights)
        self._covariance_KK = np.eye(weights) * _VARIANCE
        # weights, and the odds that they predict
        self._scores: tuple[FloatArray, FloatArray] | None = None
        self._fit_QM = np.zeros((len(NOISES), len(MASSES)))  # log-likelihoods, fading
        # Successes, failures and sums of u(1-u) at the last visit, under each candidate for the
        # noise.
        self._evidence_Q: list[FloatArray] = [np.zeros((0, 3)) for _ in NOISES]
        self._odds_P: FloatArray = np.zeros(0)  # predicted odds at the last visit
        self._choose()

    def __repr__(self) -> str:
        return f"TrackingEstimator({'' if self.features is None else self.features})"

    def _choose(self) -> None:
        """Chooses the noise and the mass with the highest log-likelihood."""
        best = (
            int(self._fit_QM.argmax())
            if self._fit_QM.any()
            else _START[0] * len(MASSES) + _START[1]
        )
        self._noise_at, mass_at = divmod(best, len(MASSES))
        self.mass = MASSES[mass_at]
        """The mass M of a prompt's prior, in rollouts."""
        self.noise = NOISES[self._noise_at]
        """The variance q that a prompt's own log-odds gain per step."""
        alpha, beta = self._prior(odds_at(self._weights_K[:1]))
        self.prior_now = float(alpha[0]), float(beta[0])

    def _prior(self, odds_P: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Pseudo-successes and pseudo-failures of prompts with these predicted odds."""
        return self.mass * odds_P / (1 + odds_P), self.mass / (1 + odds_P)

    def _features(self, ids_P: Iterable[Any], prompts: int) -> FloatArray:
        """The inputs of the regression, shape (P, 1 + K): a constant and the features."""
        if self.features is None:
            return np.ones((prompts, 1))
        return np.column_stack([np.ones(prompts), self.features.of(ids_P)])

    def _odds(self, ids_P: Iterable[Any], prompts: int) -> FloatArray:
        """The predicted odds of these prompts, shape (P,)."""
        if self.features is None:
            return np.broadcast_to(odds_at(self._weights_K), prompts)
        # once for all prompts and calls of a step
        if self._scores is None or self._scores[0] is not self._weights_K:
            level_P = self._weights_K[0] + self.features.scored(self._weights_K[1:])
            self._scores = self._weights_K, odds_at(level_P)
        return self._scores[1][self.features.places(ids_P)]

    def _now(
        self, rows: IntArray | slice, odds_P: FloatArray, noise_at: int
    ) -> tuple[FloatArray, ...]:
        """Successes, failures and sums of u(1-u) of these rows under a noise, at the current step
        and prediction."""
        successes_P, failures_P, graded_P = self._evidence_Q[noise_at][rows].T
        then_P = self._odds_P[rows]
        mean_P = then_P / (1 + then_P)
        # posterior odds
        before_P = (self.mass * mean_P + successes_P) / (self.mass * (1 - mean_P) + failures_P)
        rise_P = odds_P / then_P
        after_P = before_P * rise_P
        grown_P = (1 + after_P) / (1 + before_P)
        successes_P, failures_P = successes_P * grown_P, failures_P * grown_P / rise_P
        if noise := NOISES[noise_at]:
            walked_P = noise * (self.step - self._last_P[rows]) * after_P / (1 + after_P) ** 2
            kept_P = 1 / (1 + walked_P * (successes_P + failures_P))
            return successes_P * kept_P, failures_P * kept_P, graded_P * kept_P
        return successes_P, failures_P, graded_P

    def belief(self, ids_P: Iterable[Any]) -> Beta:
        ids = ids_P if hasattr(ids_P, "__len__") else list(ids_P)
        at_P = self._index.find(ids)
        odds_P = self._odds(ids, len(at_P))
        alpha_P, beta_P = self._prior(odds_P)
        seen = np.flatnonzero(at_P >= 0)
        spread_P = np.broadcast_to(1.0, len(at_P))
        if seen.size:
            successes_K, failures_K, graded_K = self._now(at_P[seen], odds_P[seen], self._noise_at)
            alpha_P[seen] += successes_K
            beta_P[seen] += failures_K
            if graded_K.any():
                spread_P = np.ones(len(at_P))
                spread_P[seen] = spread(alpha_P[seen], beta_P[seen], graded_K)
        return unchecked(
            Beta, alpha_P=constant(alpha_P), beta_P=constant(beta_P), spread_P=spread_P
        )

    def prior_of(self, ids_P: Iterable[Any]) -> tuple[FloatArray, FloatArray]:
        ids = list(ids_P)
        return self._prior(self._odds(ids, len(ids)))

    def baseline_belief(
        self, ids_G: list[Id], group_R: IntArray, success_R: FloatArray, prior_share: float = 1.0
    ) -> Beta:
        """The belief about each rollout's prompt, whose mean has learned from the other prompts of
        the step (`left_out_means`). Arguments as in `Estimator`; `prior_share` is the share of the
        mass M."""
        belief_G, prior_G2 = self.belief(ids_G), np.column_stack(self.prior_of(ids_G))
        if prior_share < 1:
            dropped_G2 = (1 - prior_share) * prior_G2
            belief_G = Beta(
                belief_G.alpha_P - dropped_G2[:, 0],
                belief_G.beta_P - dropped_G2[:, 1],
                belief_G.spread_P,
            )
        scored_R = ~np.isnan(success_R)
        trials_G: FloatArray = np.bincount(group_R, scored_R, len(ids_G)).astype(np.float64)
        successes_G: FloatArray = np.bincount(group_R, np.nan_to_num(success_R), len(ids_G)).astype(
            np.float64
        )
        precision_KK: FloatArray = np.asarray(np.linalg.inv(self._covariance_KK))
        x_GK = self._features(ids_G, len(ids_G))
        mean_G = left_out_means(x_GK, belief_G, successes_G, trials_G, precision_KK)
        return Beta(belief_G.mass * mean_G, belief_G.mass * (1 - mean_G), belief_G.spread_P).take(
            group_R
        )

    def observe(self, ids_R: Iterable[Any], success_R: ArrayLike) -> None:
        ids_P, successes_P, trials_P, graded_P = summed(ids_R, success_R)
        if not ids_P:
            return
        belief_P, at_P = self.belief(ids_P), self._index.find(ids_P)
        self._compare(ids_P, at_P, successes_P, trials_P)
        x_PK, before_KK = (
            self._features(ids_P, len(ids_P)),
            np.asarray(np.linalg.inv(self._covariance_KK)),
        )
        move_K, precision_KK = fitted(x_PK, belief_P, successes_P, trials_P, before_KK)
        self._weights_K = self._weights_K + move_K
        self._covariance_KK = np.asarray(np.linalg.inv(precision_KK))

        odds_P = self._odds(ids_P, len(ids_P))
        seen = np.flatnonzero(at_P >= 0)
        carried_Q = [np.zeros((len(ids_P), 3)) for _ in NOISES]
        for q, carried_P3 in enumerate(carried_Q):
            carried_P3[seen] = np.column_stack(self._now(at_P[seen], odds_P[seen], q))
            carried_P3 += np.column_stack([successes_P, trials_P - successes_P, graded_P])
        at_P = self._index.add(ids_P)
        self._evidence_Q = [with_room(evidence, len(self)) for evidence in self._evidence_Q]
        self._odds_P, self._last_P = (
            with_room(self._odds_P, len(self), 1),
            with_room(self._last_P, len(self), -1),
        )
        for evidence_P3, carried_P3 in zip(self._evidence_Q, carried_Q, strict=True):
            evidence_P3[at_P] = carried_P3
        self._odds_P[at_P], self._last_P[at_P] = odds_P, self.step

    def _compare(
        self, ids_P: list[Id], at_P: IntArray, successes_P: FloatArray, trials_P: FloatArray
    ) -> None:
        """Adds the log-likelihood of a step's outcomes under each candidate for the noise and the
        mass."""
        from scipy.special import betaln  # only here, because scipy is slow to import

        odds_P = self._odds(ids_P, len(ids_P))
        seen = np.flatnonzero(at_P >= 0)
        alpha_PM = (odds_P / (1 + odds_P))[:, None] * np.array(MASSES)
        beta_PM = alpha_PM / odds_P[:, None]
        for q in range(len(NOISES)):
            s_P, f_P = np.zeros((2, len(ids_P)))
            s_P[seen], f_P[seen], _ = self._now(at_P[seen], odds_P[seen], q)
            a_PM, b_PM = alpha_PM + s_P[:, None], beta_PM + f_P[:, None]
            after_PM = betaln(a_PM + successes_P[:, None], b_PM + (trials_P - successes_P)[:, None])
            self._fit_QM[q] += (after_PM - betaln(a_PM, b_PM)).sum(axis=0)

    def tick(self) -> None:
        self.step += 1
        self._fit_QM *= _KEPT
        noise_K = np.full(len(self._weights_K), _WEIGHT_NOISE)
        noise_K[0] = _LEVEL_NOISE
        self._covariance_KK = self._covariance_KK + np.diag(noise_K)
        self._choose()

    def state_dict(self) -> dict[str, Any]:
        """Everything learned, without the features. `load_state_dict` restores it to the bit."""
        n = len(self)
        return {
            "tracking": _VERSION,
            "step": self.step,
            "ids": self.ids(),
            "evidence": np.stack([evidence[:n] for evidence in self._evidence_Q]),
            "odds": self._odds_P[:n].copy(),
            "last": self._last_P[:n].copy(),
            "weights": self._weights_K.copy(),
            "covariance": self._covariance_KK.copy(),
            "fit": self._fit_QM.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replaces what was learned by a saved state, which must be of an estimator with as many
        features.

        Raises:
            StateError: the state does not fit. Nothing has changed then.
        """
        check_state(state)
        if not np.array_equal(state.get("tracking", 0), _VERSION):
            raise StateError(
                f"The state has tracking={shown(state.get('tracking'))}, expected {_VERSION}: it "
                "was written by "
                "another estimator or another version of budgetalloc. Load it into the policy that "
                "wrote it."
            )
        with reading("beliefs"):
            ids, k = distinct_ids(state["ids"]), len(self._weights_K)
            if (features := len(state["weights"]) - 1) != k - 1:
                raise InputError(f"it has {features} features, and this estimator {k - 1}")
            shapes = {
                "evidence": (len(NOISES), len(ids), 3),
                "odds": (len(ids),),
                "last": (len(ids),),
                "step": (),
            }
            shapes |= {"weights": (k,), "covariance": (k, k), "fit": self._fit_QM.shape}
            saved = arrays_in(state, shapes, whole=("last", "step"))
            evidence, odds, last, step, weights, covariance, fit = saved.values()
            if (evidence < 0).any() or (odds <= 0).any():
                raise InputError("negative evidence")
            if step < 0 or ((last < 0) | (last > step)).any():
                raise InputError(f"visits outside steps 0 to {step}")
        self.step, self._index, self._last_P = int(step), Index(ids), last.astype(np.int64)
        self._evidence_Q = [np.ascontiguousarray(sums_P3) for sums_P3 in evidence]
        self._odds_P, self._weights_K, self._covariance_KK, self._fit_QM = (
            odds,
            weights,
            covariance,
            fit,
        )
        self._choose()

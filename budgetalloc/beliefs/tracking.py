"""An estimator that follows the language model: a regression that all prompts share, and each
prompt's own evidence."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.estimator import Estimator, spread, summed
from budgetalloc.beliefs.features import Features
from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import Beta, FloatArray, unchecked
from budgetalloc.beliefs.state import Table
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_type

NOISES = (0.0, 0.002, 0.01, 0.05, 0.3)
"""Candidates for the variance that a prompt's own log-odds gain per step."""
MASSES = (0.01, 0.03, 0.1, 0.3, 0.6, 2.0, 6.0, 20.0)
"""Candidates for the mass of a prompt's prior, in rollouts."""
_START = (2, 4)  # the first noise and mass
_KEPT = 0.95  # share of the log-likelihoods of candidates that is kept at a step
_VARIANCE = 4.0  # of each weight before the first rewards
_WEIGHT_NOISE = 0.01  # variance that each weight gains per step
_FOLDS = 8
_NEWTON = 3  # iterations
_FARTHEST = 3.0  # log-odds by which one iteration moves a prompt at most
_RAREST = 1e-3  # predicted means lie between this and 1 minus it


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

    >>> estimator = TrackingEstimator()
    >>> # of 8, in each of 20 prompts; later, the others are not visited
    >>> for passed in (0, 2, 4, 6, 8):
    ...     seen = range(20) if passed == 0 else range(10)
    ...     estimator.observe(np.repeat(seen, 8),
    ...         np.tile(np.arange(8) < passed, len(seen))); estimator.tick()
    >>> estimator.belief([0, 19, "new"]).mean.round(1)  # all follow the rise
    array([0.9, 1. , 1. ])
    """

    saved = (*Estimator.saved, "_weights_K", "_covariance_KK", "_fit_QM")

    def __init__(self, features: Features | None = None) -> None:
        check_type("features", features, (Features, type(None)), "budgetalloc.Features or None")
        self.features = features
        self.step = 0
        weights = 1 + (0 if features is None else features.count)
        self._format = f"tracking 2, {weights - 1} features"
        self._weights_K = np.zeros(weights)
        self._covariance_KK = np.eye(weights) * _VARIANCE
        # weights, and the odds that they predict
        self._scores: tuple[FloatArray, FloatArray] | None = None
        self._fit_QM = np.zeros((len(NOISES), len(MASSES)))  # log-likelihoods, fading
        # Evidence as of `summed` at the last visit under each candidate for the noise, and the
        # odds predicted then.
        evidence = np.zeros((len(NOISES), 3))
        self._prompts = Table({"evidence": evidence, "odds": 1.0, "last": 0})
        self._choose()

    def __repr__(self) -> str:
        return f"TrackingEstimator({'' if self.features is None else self.features})"

    def _choose(self) -> None:
        """Chooses the noise and the mass with the highest log-likelihood."""
        self._noise_at, mass_at = _START
        if self._fit_QM.any():
            self._noise_at, mass_at = divmod(int(self._fit_QM.argmax()), len(MASSES))
        self.mass = MASSES[mass_at]
        """The mass M of a prompt's prior, in rollouts."""
        self.noise = NOISES[self._noise_at]
        """The variance q that a prompt's own log-odds gain per step."""
        alpha, beta = self._prior(_odds_at(self._weights_K[:1]))
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
            return np.broadcast_to(_odds_at(self._weights_K), prompts)
        # once for all prompts and calls of a step
        if self._scores is None or self._scores[0] is not self._weights_K:
            level_P = self._weights_K[0] + self.features.scored(self._weights_K[1:])
            self._scores = self._weights_K, _odds_at(level_P)
        return self._scores[1][self.features.places(ids_P)]

    def _now(self, rows: IntArray, odds_P: FloatArray, noise_at: int) -> FloatArray:
        """The evidence of these rows under a noise, at the current step and prediction."""
        evidence_P3 = self._prompts["evidence"][rows, noise_at]
        successes_P, failures_P, graded_P = evidence_P3.T
        then_P = self._prompts["odds"][rows]
        mean_P = then_P / (1 + then_P)
        # posterior odds
        before_P = (self.mass * mean_P + successes_P) / (self.mass * (1 - mean_P) + failures_P)
        rise_P = odds_P / then_P
        after_P = before_P * rise_P
        grown_P = (1 + after_P) / (1 + before_P)
        successes_P, failures_P = successes_P * grown_P, failures_P * grown_P / rise_P
        now_P3 = np.column_stack([successes_P, failures_P, graded_P])
        if noise := NOISES[noise_at]:
            steps_P = self.step - self._prompts["last"][rows]
            walked_P = noise * steps_P * after_P / (1 + after_P) ** 2
            now_P3 *= (1 / (1 + walked_P * (successes_P + failures_P)))[:, None]
        return now_P3

    def belief(self, ids_P: Iterable[Any]) -> Beta:
        ids = ids_P if hasattr(ids_P, "__len__") else list(ids_P)
        at_P = self._prompts.find(ids)
        odds_P = self._odds(ids, len(at_P))
        alpha_P, beta_P = self._prior(odds_P)
        spread_P = np.broadcast_to(1.0, len(at_P))
        seen = np.flatnonzero(at_P >= 0)
        if seen.size:
            now_K3 = self._now(at_P[seen], odds_P[seen], self._noise_at)
            alpha_P[seen] += now_K3[:, 0]
            beta_P[seen] += now_K3[:, 1]
            if now_K3[:, 2].any():
                spread_P = np.ones(len(at_P))
                spread_P[seen] = spread(alpha_P[seen], beta_P[seen], now_K3[:, 2])
        return unchecked(Beta, alpha_P=alpha_P, beta_P=beta_P, spread_P=spread_P)

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
        trials_G = np.asarray(np.bincount(group_R, scored_R, len(ids_G)), dtype=np.float64)
        successes_G = np.asarray(
            np.bincount(group_R, np.nan_to_num(success_R), len(ids_G)), dtype=np.float64
        )
        precision_KK: FloatArray = np.asarray(np.linalg.inv(self._covariance_KK))
        x_GK = self._features(ids_G, len(ids_G))
        mean_G = left_out_means(x_GK, belief_G, successes_G, trials_G, precision_KK)
        mass_G = belief_G.mass
        return Beta(mass_G * mean_G, mass_G * (1 - mean_G), belief_G.spread_P).take(group_R)

    def observe(self, ids_R: Iterable[Any], success_R: ArrayLike) -> None:
        ids_P, added_P3 = summed(ids_R, success_R)
        if not ids_P:
            return
        belief_P, at_P = self.belief(ids_P), self._prompts.find(ids_P)
        self._compare(ids_P, at_P, added_P3)
        x_PK = self._features(ids_P, len(ids_P))
        before_KK: FloatArray = np.asarray(np.linalg.inv(self._covariance_KK))
        successes_P, failures_P, _ = added_P3.T
        trials_P = np.rint(successes_P + failures_P)
        move_K, precision_KK = fitted(x_PK, belief_P, successes_P, trials_P, before_KK)
        self._weights_K = self._weights_K + move_K
        self._covariance_KK = np.asarray(np.linalg.inv(precision_KK))

        odds_P = self._odds(ids_P, len(ids_P))
        seen = np.flatnonzero(at_P >= 0)
        after_PQ3 = np.repeat(added_P3[:, None], len(NOISES), axis=1)
        for q in range(len(NOISES)):
            after_PQ3[seen, q] += self._now(at_P[seen], odds_P[seen], q)
        at_P = self._prompts.add(ids_P)
        for name, after in (("evidence", after_PQ3), ("odds", odds_P), ("last", self.step)):
            self._prompts[name][at_P] = after

    def _compare(self, ids_P: list[Id], at_P: IntArray, added_P3: FloatArray) -> None:
        """Adds the log-likelihood of a step's outcomes under each candidate for the noise and the
        mass."""
        from scipy.special import betaln  # only here, because scipy is slow to import

        odds_P = self._odds(ids_P, len(ids_P))
        seen = np.flatnonzero(at_P >= 0)
        alpha_PM = (odds_P / (1 + odds_P))[:, None] * np.array(MASSES)
        beta_PM = alpha_PM / odds_P[:, None]
        for q in range(len(NOISES)):
            now_P3 = np.zeros((len(ids_P), 3))
            now_P3[seen] = self._now(at_P[seen], odds_P[seen], q)
            a_PM, b_PM = alpha_PM + now_P3[:, :1], beta_PM + now_P3[:, 1:2]
            after_PM = betaln(a_PM + added_P3[:, :1], b_PM + added_P3[:, 1:2])
            self._fit_QM[q] += (after_PM - betaln(a_PM, b_PM)).sum(axis=0)

    def tick(self) -> None:
        self.step += 1
        self._fit_QM *= _KEPT
        self._covariance_KK = self._covariance_KK + np.eye(len(self._weights_K)) * _WEIGHT_NOISE
        self._choose()

    def check_restored(self) -> None:
        super().check_restored()
        if (self._prompts["odds"] == 0).any():
            raise InputError("odds=0", argument="odds")
        self._choose()


def _odds_at(level: FloatArray) -> FloatArray:
    """The odds p / (1-p) at these log-odds, with p in [0.001, 0.999]."""
    farthest = np.log((1 - _RAREST) / _RAREST)
    return np.asarray(np.exp(np.clip(level, -farthest, farthest)))


def fitted(
    features_GK: FloatArray,
    belief_G: Beta,
    successes_G: FloatArray,
    trials_G: FloatArray,
    precision_KK: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """The update of the regression's weights by the outcomes of a step, and their precision (the
    inverse of the covariance) after it.

    The log-odds of prompt g rise by x_g . d from the mean of its belief. The move d maximises the
    log-likelihood of the outcomes minus d' precision d / 2, by Newton's method. Each prompt's
    log-likelihood is divided by 1 + n / (a + b), because its n outcomes share the error of one
    belief, Beta(a, b).

    >>> belief = Beta(np.full(100, 5.0), np.full(100, 5.0))
    >>> successes_G, trials_G = np.full(100, 0.8), np.ones(100)
    >>> move, _ = fitted(np.ones((100, 1)), belief, successes_G, trials_G, np.eye(1))
    >>> round(float(move[0]), 2)  # towards log(0.8 / 0.2) = 1.39
    1.3
    """
    share_G = 1 / (1 + trials_G / belief_G.mass)
    before_G = np.log(belief_G.alpha_P / belief_G.beta_P)
    move_K = np.zeros(features_GK.shape[1])
    for _ in range(_NEWTON):
        p_G = 1 / (1 + np.exp(-np.clip(before_G + features_GK @ move_K, -50, 50)))
        after_KK = precision_KK + features_GK.T @ (
            (share_G * trials_G * p_G * (1 - p_G))[:, None] * features_GK
        )
        slope_K = features_GK.T @ (share_G * (successes_G - trials_G * p_G)) - precision_KK @ move_K
        step_K = np.linalg.solve(after_KK, slope_K)
        farthest = float(np.abs(features_GK @ step_K).max(initial=0.0))
        move_K = move_K + step_K * min(1.0, _FARTHEST / max(farthest, 1e-12))
    return move_K, after_KK


def left_out_means(
    features_GK: FloatArray,
    belief_G: Beta,
    successes_G: FloatArray,
    trials_G: FloatArray,
    precision_KK: FloatArray,
) -> FloatArray:
    """The mean of each belief after the regression has learned from the other prompts of the step,
    shape (G,).

    The prompts are divided into eight folds. The weights for the prompts of a fold are fitted to
    those of the others, so that no mean depends on the prompt's own outcomes. Arguments as in
    `fitted`.
    """
    fold_G = np.arange(len(belief_G)) % _FOLDS
    mean_G = belief_G.mean.copy()
    for fold in range(min(_FOLDS, len(belief_G))):
        own, others = np.flatnonzero(fold_G == fold), np.flatnonzero(fold_G != fold)
        if not others.size:
            break
        rest = belief_G.take(others)
        given = features_GK[others], rest, successes_G[others], trials_G[others]
        move_K, _ = fitted(*given, precision_KK)
        odds_K = belief_G.alpha_P[own] / belief_G.beta_P[own] * np.exp(features_GK[own] @ move_K)
        mean_G[own] = odds_K / (1 + odds_K)
    return np.clip(mean_G, 1e-4, 1 - 1e-4)

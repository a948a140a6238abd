"""An estimator that follows the language model: a regression that all prompts share, and each
prompt's own evidence."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

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
VISIT = 0.96
"""Share of a prompt's evidence that is kept at a step with new rollouts of it."""
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
    + q t n p (1-p)) after t steps. Each visit keeps 96 % of it (`VISIT`), so that a prompt which
    failed a hundred times and then always passes is believed within 20 visits.

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
        self._format = f"tracking 3, {weights - 1} features"
        self._weights_K = np.zeros(weights)
        self._covariance_KK = np.eye(weights) * _VARIANCE
        # weights, and the odds that they predict
        self._scores: tuple[FloatArray, FloatArray] | None = None
        self._fit_QM = np.zeros((len(NOISES), len(MASSES)))  # log-likelihoods, fading
        # Evidence as of `summed` at the last visit under each candidate for the noise, and the
        # odds predicted then.
        evidence = np.zeros((len(NOISES), 3))
        still = np.zeros(2)
        self._prompts = Table({"evidence": evidence, "odds": 1.0, "last": 0, "still": still})
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

    def _now(self, rows: IntArray, odds_P: FloatArray, noises: slice = slice(None)) -> FloatArray:
        """The evidence of these rows under each of these noises, at the current step and
        prediction, shape (P, Q, 3)."""
        evidence_PQ3: FloatArray = self._prompts["evidence"][rows, noises]
        successes_PQ, failures_PQ = evidence_PQ3[..., 0], evidence_PQ3[..., 1]
        then_P = self._prompts["odds"][rows][:, None]
        rise_P = odds_P[:, None] / then_P
        mean_P = then_P / (1 + then_P)
        prior_P, against_P = self.mass * mean_P, self.mass * (1 - mean_P)
        before_PQ = (prior_P + successes_PQ) / (against_P + failures_PQ)  # posterior odds
        after_PQ = before_PQ * rise_P
        grown_PQ = (1 + after_PQ) / (1 + before_PQ)
        now_PQ3 = evidence_PQ3.copy()
        now_PQ3[..., 0] *= grown_PQ
        now_PQ3[..., 1] *= grown_PQ / rise_P
        steps_P = (self.step - self._prompts["last"][rows])[:, None]
        walked_PQ = np.array(NOISES)[noises] * steps_P * after_PQ / (1 + after_PQ) ** 2
        now_PQ3 /= (1 + walked_PQ * (now_PQ3[..., 0] + now_PQ3[..., 1]))[..., None]
        return now_PQ3

    def belief(self, ids_P: Iterable[Any]) -> Beta:
        ids = ids_P if hasattr(ids_P, "__len__") else list(ids_P)
        at_P = self._prompts.find(ids)
        odds_P = self._odds(ids, len(at_P))
        alpha_P, beta_P = self._prior(odds_P)
        spread_P = np.broadcast_to(1.0, len(at_P))
        seen = np.flatnonzero(at_P >= 0)
        if seen.size:
            chosen = slice(self._noise_at, self._noise_at + 1)
            now_K3 = self._now(at_P[seen], odds_P[seen], chosen)[:, 0]
            alpha_P[seen] += now_K3[:, 0]
            beta_P[seen] += now_K3[:, 1]
            if now_K3[:, 2].any():
                spread_P = np.ones(len(at_P))
                spread_P[seen] = spread(alpha_P[seen], beta_P[seen], now_K3[:, 2])
        return unchecked(Beta, alpha_P=alpha_P, beta_P=beta_P, spread_P=spread_P)

    def prior_of(self, ids_P: Sequence[Id]) -> tuple[FloatArray, FloatArray]:
        return self._prior(self._odds(ids_P, len(ids_P)))

    def baseline_belief(
        self,
        ids_G: Sequence[Id],
        group_R: IntArray,
        success_R: FloatArray,
        prior_share: float = 1.0,
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

    def learn(self, ids_G: Sequence[Id], group_R: IntArray, success_R: FloatArray) -> None:
        at_K, added_P3 = summed(group_R, success_R)
        if not at_K.size:
            return
        ids_P = [ids_G[at] for at in at_K.tolist()]
        belief_P, at_P = self.belief(ids_P), self._prompts.find(ids_P)
        seen = np.flatnonzero(at_P >= 0)
        self._compare(at_P, self._odds(ids_P, len(ids_P)), added_P3)
        x_PK = self._features(ids_P, len(ids_P))
        before_KK: FloatArray = np.asarray(np.linalg.inv(self._covariance_KK))
        successes_P, failures_P, _ = added_P3.T
        trials_P = np.rint(successes_P + failures_P)
        move_K, precision_KK = fitted(x_PK, belief_P, successes_P, trials_P, before_KK)
        self._weights_K = self._weights_K + move_K
        self._covariance_KK = np.asarray(np.linalg.inv(precision_KK))

        odds_P = self._odds(ids_P, len(ids_P))
        after_PQ3 = np.repeat(added_P3[:, None], len(NOISES), axis=1)
        new_visit_P = self._prompts["last"][at_P[seen]] < self.step
        kept_P = np.where(new_visit_P, VISIT, 1.0)[:, None, None]
        after_PQ3[seen] += kept_P * self._now(at_P[seen], odds_P[seen])
        at_P = self._prompts.add(ids_P)
        for name, after in (("evidence", after_PQ3), ("odds", odds_P), ("last", self.step)):
            self._prompts[name][at_P] = after
        self._count_still(at_P, added_P3)

    def _compare(self, at_P: IntArray, odds_P: FloatArray, added_P3: FloatArray) -> None:
        """Adds the log-likelihood of a step's outcomes under each candidate for the noise and the
        mass."""
        from scipy.special import betaln  # only here, because scipy is slow to import

        seen = np.flatnonzero(at_P >= 0)
        alpha_PM = (odds_P / (1 + odds_P))[:, None] * np.array(MASSES)
        beta_PM = alpha_PM / odds_P[:, None]
        now_PQ3 = np.zeros((len(at_P), len(NOISES), 3))
        now_PQ3[seen] = self._now(at_P[seen], odds_P[seen])
        a_PQM, b_PQM = alpha_PM[:, None] + now_PQ3[..., :1], beta_PM[:, None] + now_PQ3[..., 1:2]
        passed_P, failed_P = added_P3[:, 0, None, None], added_P3[:, 1, None, None]
        after_PQM = betaln(a_PQM + passed_P, b_PQM + failed_P)
        self._fit_QM += (after_PQM - betaln(a_PQM, b_PQM)).sum(axis=0)

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
    counted_FG: FloatArray | float = 1.0,
) -> tuple[FloatArray, FloatArray]:
    """The update of the regression's weights by the outcomes of a step, and their precision (the
    inverse of the covariance) after it.

    The log-odds of prompt g rise by x_g . d from the mean of its belief. The move d maximises the
    log-likelihood of the outcomes minus d' precision d / 2, by Newton's method. Each prompt's
    log-likelihood is divided by 1 + n / (a + b), because its n outcomes share the error of one
    belief, Beta(a, b). With `counted_FG`, there is an update for each of F sets of prompts, in
    which a prompt counts by this factor: shapes (F, K) and (F, K, K).

    >>> belief = Beta(np.full(100, 5.0), np.full(100, 5.0))
    >>> successes_G, trials_G = np.full(100, 0.8), np.ones(100)
    >>> move, _ = fitted(np.ones((100, 1)), belief, successes_G, trials_G, np.eye(1))
    >>> round(float(move[0]), 2)  # towards log(0.8 / 0.2) = 1.39
    1.3
    """
    share = counted_FG / (1 + trials_G / belief_G.mass)
    before_G = np.log(belief_G.alpha_P / belief_G.beta_P)
    move = np.zeros((*share.shape[:-1], features_GK.shape[1]))
    for _ in range(_NEWTON):
        p = 1 / (1 + np.exp(-np.clip(before_G + move @ features_GK.T, -50, 50)))
        curved = (share * trials_G * p * (1 - p))[..., None] * features_GK
        after = precision_KK + features_GK.T @ curved
        slope = (share * (successes_G - trials_G * p)) @ features_GK - move @ precision_KK
        step = np.linalg.solve(after, slope[..., None])[..., 0]
        farthest = np.abs(step @ features_GK.T).max(axis=-1, initial=1e-12, keepdims=True)
        move = move + step * np.minimum(1.0, _FARTHEST / farthest)
    return move, after


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
    folds = min(_FOLDS, len(belief_G))
    if folds < 2:
        return np.clip(belief_G.mean, 1e-4, 1 - 1e-4)
    fold_G = np.arange(len(belief_G)) % folds
    others_FG = (fold_G != np.arange(folds)[:, None]).astype(np.float64)
    move_FK, _ = fitted(features_GK, belief_G, successes_G, trials_G, precision_KK, others_FG)
    rise_G = np.einsum("gk,gk->g", features_GK, move_FK[fold_G])
    odds_G = belief_G.alpha_P / belief_G.beta_P * np.exp(rise_G)
    return np.asarray(np.clip(odds_G / (1 + odds_G), 1e-4, 1 - 1e-4))

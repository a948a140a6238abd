"""How fast prompts drift in a log: the change of a prompt's mean success from visit to visit."""

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.ids import check_ids, factorize
from budgetalloc.errors import check_integer, check_type
from budgetalloc.logs.chunk import Chunk

__all__ = ["discount", "drift"]


def drift(ledger: Chunk, *, lag: int = 1) -> list[dict[str, float]]:
    """How far prompts drift from visit to visit: a row for each visit but the first.

    A visit is a step in which the prompt had rollouts. Part of the change in its mean success is sampling noise, which
    is estimated from the spread inside the groups. The rest is drift. Only prompts with two scored rollouts or more in
    both visits count.

    Args:
        ledger: A whole run.
        lag: How many visits back a visit is compared with, at least 1.

    Returns:
        `visit` (from `lag`; the first visit is 0) and `prompts`; then in units of success `mean` at the visit, `change`
        of the mean, `sd` (standard deviation over prompts of the change, without the noise; 0 if the noise explains all
        of it) and `noise` (standard deviation of sampling alone). The `sd` of one visit is uncertain: `discount` uses
        all visits together.

    >>> step_R, ids_R = np.repeat([0, 1], 3200), np.tile(np.repeat(np.arange(400), 8), 2)
    >>> even_R = np.arange(6400) % 2  # at first all pass 4 of 8; then every other prompt 8, the rest none
    >>> rewards_R = np.where(step_R == 0, even_R, ids_R % 2) * 1.0
    >>> log = Chunk(step_R, ids_R.tolist(), rewards_R, *np.zeros((3, 6400)))
    >>> [{name: round(x, 2) for name, x in row.items()} for row in drift(log)]
    [{'visit': 1, 'prompts': 400, 'mean': 0.5, 'change': 0.0, 'sd': 0.46, 'noise': 0.19}]
    """
    names = ("visit", "prompts", "mean", "change", "sd", "noise")
    return [
        dict(zip(names, (visit, prompts, mean, change, max(spread - noise, 0.0) ** 0.5, noise**0.5), strict=True))
        for visit, prompts, mean, change, spread, noise in _changes(ledger, check_integer("lag", lag, 1))
    ]


def discount(ledger: Chunk, *, lag: int = 4) -> float:
    """The discount per visit that fits the drift of this log best, in [0, 1]; NaN without two prompts of two visits.

    In the model, each prompt is a random walk with a step of variance q per visit, observed with sampling noise of
    variance r. The best estimate of such a walk is an exponential average that keeps 1 - k of the past at each visit,
    k = P / (P + r), P = (q + sqrt(q^2 + 4 q r)) / 2 (Muth, JASA 1960). A log without drift gives 1.

    The result is rough. The model assumes visits of about the same size, and the same drift for all prompts during the
    whole run. If q is far below r, an estimate takes thousands of visits.

    Args:
        ledger: A whole run.
        lag: Distance in visits of the changes from which q is estimated, at least 1; smaller if the run has fewer
            visits. A larger lag measures a slow drift better.

    >>> rng = np.random.default_rng(0)
    >>> rates_VP = np.clip(0.5 + rng.normal(0, 0.05, (10, 2000)).cumsum(axis=0), 0, 1)  # q = 0.05^2, r = 0.24 / 8
    >>> rewards_VPR = rng.random((10, 2000, 8)) < rates_VP[..., None]
    >>> step_R, ids_R = np.repeat(np.arange(10), 16_000), np.tile(np.repeat(np.arange(2000), 8), 10)
    >>> round(discount(Chunk(step_R, ids_R.tolist(), rewards_VPR.ravel() * 1.0, *np.zeros((3, 160_000)))), 2)
    0.75
    """
    check_integer("lag", lag, 1)
    check_type("ledger", ledger, Chunk, "a log, such as ba.Ledger.read(path)")
    for back in range(min(lag, len(ledger.ids_R)), 0, -1):
        rows = [row for row in _changes(ledger, back) if row[1] > 1]  # a variance needs two prompts
        if rows:
            _, prompts_V, _, _, spread_V, noise_V = np.array(rows).T
            q = max(float(np.average(spread_V - noise_V, weights=prompts_V)), 0.0) / back
            r = float(np.average(noise_V, weights=prompts_V)) / 2  # a change has the noise of two visits
            ahead = (q + (q * q + 4 * q * r) ** 0.5) / 2
            return 1.0 - ahead / (ahead + r) if ahead else 1.0
    return float("nan")


def _changes(ledger: Chunk, lag: int) -> list[tuple[int, int, float, float, float, float]]:
    """For each visit from `lag` on: visit, prompts, mean, mean change, its variance, the variance of sampling alone."""
    check_type("ledger", ledger, Chunk, "a log, such as ba.Ledger.read(path)")
    _, prompt_R = factorize(check_ids(ledger.ids_R, "ledger.ids_R"))
    _, step_R = np.unique(np.asarray(ledger.step_R), return_inverse=True)
    steps = int(step_R.max(initial=0)) + 1
    key_G, group_R = np.unique(prompt_R * steps + step_R, return_inverse=True)  # by prompt, then step
    prompt_G = key_G // steps
    success_R = np.asarray(ledger.success_R, dtype=np.float64)
    scored_R = ~np.isnan(success_R)

    def total(values_R: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(group_R[scored_R], weights=values_R[scored_R], minlength=len(key_G)).astype(np.float64)

    scored_G = total(np.ones(len(success_R)))
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_G = total(success_R) / scored_G
        noise_G = total((success_R - mean_G[group_R]) ** 2) / (scored_G * (scored_G - 1))  # of the mean
    first_G = np.maximum.accumulate(np.where(np.diff(prompt_G, prepend=-1) > 0, np.arange(len(key_G)), 0))
    visit_G = np.arange(len(key_G)) - first_G
    changes = []
    for visit in range(lag, int(visit_G.max(initial=0)) + 1):
        now_P = np.flatnonzero(visit_G == visit)
        now_P = now_P[(scored_G[now_P] > 1) & (scored_G[now_P - lag] > 1)]
        if len(now_P):
            change_P = mean_G[now_P] - mean_G[now_P - lag]
            spread = float(change_P.var(ddof=1)) if len(now_P) > 1 else 0.0
            noise = float((noise_G[now_P] + noise_G[now_P - lag]).mean())
            changes.append((visit, len(now_P), float(mean_G[now_P].mean()), float(change_P.mean()), spread, noise))
    return changes

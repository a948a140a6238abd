"""The value of a policy one step ahead, at each step of a log that another policy generated."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.ids import Id, check_ids
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import unequal
from budgetalloc.budget import Budget
from budgetalloc.errors import InputError, UnsupportedError, check_choice, check_integer, check_type
from budgetalloc.logs.chunk import Chunk, Ints
from budgetalloc.offline.logged_steps import Inclusion, LoggedStep, could_be_logged, logged_steps
from budgetalloc.offline.offpolicy import all_within, doubly_robust, horvitz_thompson, self_normalised
from budgetalloc.policies import Policy
from budgetalloc.policies.bounds import Bounds
from budgetalloc.values import mixed_group

__all__ = ["Estimate", "StepValue", "one_step_value"]

Estimate = Literal["doubly robust", "horvitz-thompson", "self-normalised", "direct"]


@dataclass(frozen=True)
class StepValue:
    """The value of a policy per step, and how much of it is logged or modelled.

    Args:
        value: Mixed groups per step.
        error: Standard error of `value`, from the spread over steps. It does not contain the bias of the model.
        steps: Steps scored.
        rollouts: Rollouts that the policy gave per step.
        logged: Share of these rollouts that went to prompts logged at the step, in groups no larger than the logged
            ones.
        modelled: Share of these rollouts for which the log has no answer, because the prompt could not have been
            logged, or only in smaller groups. The model alone gives their value.
    """

    value: float
    error: float
    steps: int
    rollouts: float
    logged: float
    modelled: float


def one_step_value(
    policy: Policy,
    ledger: Chunk,
    budget: Budget | int | None = None,
    *,
    candidates: int | Literal["all"] | None = None,
    pool: Iterable[Any] | None = None,
    inclusion: Inclusion = "epochs",
    estimate: Estimate = "doubly robust",
    model: BetaEstimator | None = None,
    skip: int = 0,
) -> StepValue:
    """How many groups per step would have been mixed if the policy had decided the step, in a run of uniform draws.

    At each step the policy has observed the run's earlier steps, and decides this one step. Then the run continues as
    logged, so the value does not include the effect of the policy's own history. `Replay` includes it, but must model
    rewards that were not logged. The one-step value needs no model for a prompt that could have been logged in a group
    at least as large.

    Args:
        policy: It is copied. A policy that decides in rounds is refused.
        ledger: A run that gave every prompt of its batch the same number of rollouts. Groups are mixed by its rewards;
            the policy learns from its success.
        budget: The budget of a step; by default the rollouts that the run generated. An integer has the same bounds as
            in `simulate`.
        candidates: The candidates, by default those of `policy.needs`: 1, the logged batch; k, k times as many; "all",
            the pool.
        pool: All prompts that the run could draw; by default those of the ledger. Give it if many prompts were never
            drawn: otherwise prompts that were drawn late seem more likely than they were.
        inclusion: How the run drew its batches: from shuffled "epochs", as trainers do, in which no prompt comes twice;
            or each batch "independent" of the others.
        estimate: An estimate of `budgetalloc.offline.offpolicy`, or "direct", the model alone.
        model: The model of prompts that were not logged, for "doubly robust" and "direct", learned from earlier steps;
            by default `BetaEstimator(discount=0.9)`. It is copied. The estimate is too high for a policy that maximises
            the belief of the same model.
        skip: Steps at the start that are observed but not scored.

    Raises:
        InputError: an option out of range, a log that was not drawn as `inclusion` says, or no step to score.
        UnsupportedError: a policy that decides in rounds; groups of different sizes in a step with only some prompts as
            candidates; an estimate without a model where the log has no answer for some rollouts.

    >>> import budgetalloc as ba
    >>> rng = np.random.default_rng(0)
    >>> order_S = np.concatenate([rng.permutation(12) for _ in range(50)])  # 50 epochs of three batches of 4 prompts
    >>> ids_R, step_R = np.repeat(order_S, 4), np.repeat(np.arange(150), 16)
    >>> rewards_R = (rng.random(2400) < ids_R / 11) * 1.0
    >>> log = ba.Ledger(step_R, ids_R.tolist(), rewards_R, *np.zeros((3, 2400)))
    >>> uniform = one_step_value(ba.uniform(), log)
    >>> round(uniform.value, 2), round(uniform.error, 2), uniform.logged
    (2.18, 0.08, 1.0)
    >>> mixed_group(ba.Point(np.arange(12) / 11), [4]).sum().round(2) / 3  # the truth: 4 of 12 prompts at each step
    np.float64(2.18)
    """
    check_type("policy", policy, Policy, "a policy such as ba.uniform()")
    check_type("model", model, (BetaEstimator, type(None)), "a BetaEstimator or None")
    check_choice("inclusion", inclusion, get_args(Inclusion))
    check_choice("estimate", estimate, get_args(Estimate))
    check_integer("skip", skip, 0)
    bounds = Bounds.resolve(policy.needs, candidates=candidates)
    policy = copy.deepcopy(policy)
    belief = BetaEstimator(discount=0.9) if model is None else copy.deepcopy(model)
    ids, steps = logged_steps(ledger, [] if pool is None else check_ids(pool, "pool"))
    every_S = [step.at_P for step in steps]
    could_S = every_S if bounds.candidates == 1 else could_be_logged(steps, len(ids), inclusion)
    terms: list[_Terms] = []
    for step, could_P in zip(steps, could_S, strict=True):
        if step.number >= skip and not np.isnan(step.rewards_R).all():
            known = range(len(ids)) if bounds.candidates == "all" else could_P.tolist()
            offered_P = np.array(bounds.offer(step.at_P.tolist(), known, policy.seed, step.number))
            limit = _limit(budget, bounds, step, len(offered_P))
            terms.append(_decide(policy, belief, ids, step, could_P, offered_P, limit))
        ids_R = [ids[at] for at in step.at_R.tolist()]
        policy.observe(ids_R, step.rewards_R, step.success_R)
        belief.observe(ids_R, step.success_R)
        belief.tick()
    if not terms:
        raise InputError(
            f"skip={skip!r}: the log has {len(steps)} steps, and none of the remaining ones has a reward. Use a "
            "smaller skip, or a log with rewards."
        )
    return _value(terms, estimate, policy)


class _Terms(NamedTuple):
    """One step. P: the prompts with a group of two or more for which the log has an answer."""

    outcomes_P: FloatArray  # NaN where not logged
    propensities_P: FloatArray
    model_P: FloatArray
    alone: float  # the model's expectation for prompts without an answer in the log
    rollouts: int
    logged: int
    modelled: int


def _limit(budget: Budget | int | None, bounds: Bounds, step: LoggedStep, offered: int) -> Budget:
    if isinstance(budget, Budget):
        return budget
    rollouts = len(step.at_R) if budget is None else check_integer("budget", budget, 1)
    return bounds.budget(rollouts, offered, rollouts // len(step.at_P))


def _decide(
    policy: Policy,
    belief: BetaEstimator,
    ids: list[Id],
    step: LoggedStep,
    could_P: Ints,
    offered_P: Ints,
    limit: Budget,
) -> _Terms:
    """The policy's counts at this step, and their outcomes by the log and the model. P: the candidates."""
    ids_P = [ids[at] for at in offered_P.tolist()]
    asked = policy.begin(ids_P, limit)
    counts_P = asked.request()
    if asked.request().any():
        raise UnsupportedError(
            f"{policy} decides in rounds: its later requests depend on rewards of the step that were not logged. Use "
            "ba.Replay."
        )
    possible_P = np.isin(offered_P, could_P)
    propensity = len(step.at_P) / int(possible_P.sum())
    if propensity < 1 and step.size_P.min() < step.size_P.max():
        raise UnsupportedError(
            f"Step {step.number} of the log has groups of {step.size_P.min()} to {step.size_P.max()} rollouts, so the "
            "group size of a prompt outside the batch is not known. Use candidates=1, or ba.Replay."
        )
    place = np.full(len(ids), -1)  # in the batch
    place[step.at_P] = np.arange(len(step.at_P))
    row_P = place[offered_P]
    largest_P = np.where(row_P >= 0, step.size_P[row_P], step.size_P[0])
    logged_P = (counts_P > 1) & possible_P & (counts_P <= largest_P)
    alone_P = (counts_P > 1) & ~logged_P
    outcomes_P = _mixed(step, place, counts_P, row_P)
    values_PN = mixed_group(belief.belief(ids_P), np.arange(int(counts_P.max(initial=0)) + 1))
    model_P = values_PN[np.arange(len(ids_P)), counts_P]
    return _Terms(
        outcomes_P=outcomes_P[logged_P],
        propensities_P=np.full(int(logged_P.sum()), propensity),
        model_P=model_P[logged_P],
        alone=float(model_P[alone_P].sum()),
        rollouts=int(counts_P.sum()),
        logged=int(counts_P[logged_P & ~np.isnan(outcomes_P)].sum()),
        modelled=int(counts_P[alone_P].sum()),
    )


def _mixed(step: LoggedStep, place: Ints, counts_P: Ints, row_P: Ints) -> FloatArray:
    """The estimate of P(rewards of a group of this many are unequal), shape (P,); NaN where too few were logged."""
    scored_R = ~np.isnan(step.rewards_R)
    group_R = place[step.at_R[scored_R]]
    scored_G = np.bincount(group_R, minlength=len(step.at_P))
    counts_G = np.zeros(len(step.at_P), dtype=np.int64)
    counts_G[row_P[row_P >= 0]] = counts_P[row_P >= 0]
    part_V, size_V = np.unique(np.stack([group_R, _values(step.rewards_R[scored_R])]), axis=1, return_counts=True)
    fits_V = scored_G[part_V[0]] >= counts_G[part_V[0]]
    part_V, size_V = part_V[0][fits_V], size_V[fits_V]  # of each value in a group: the group, and how often
    equal_V = all_within(size_V, scored_G[part_V], counts_G[part_V])
    equal_G = np.bincount(part_V, weights=equal_V, minlength=len(step.at_P))
    mixed_G = np.where(scored_G >= np.maximum(counts_G, 1), 1.0 - equal_G, np.nan)
    return np.where(row_P >= 0, mixed_G[row_P], np.nan)


def _values(rewards_R: FloatArray) -> Ints:
    """The number of each reward's value, from the lowest, shape (R,). Rewards that differ by rounding have the same."""
    value_V, at_R = np.unique(rewards_R, return_inverse=True)
    number_V = np.concatenate([[0], unequal(value_V[:-1], value_V[1:]).cumsum()])
    return np.asarray(number_V[at_R], dtype=np.int64)


def _value(terms: list[_Terms], estimate: Estimate, policy: Policy) -> StepValue:
    rollouts, logged, modelled = (sum(getattr(x, name) for x in terms) for name in ("rollouts", "logged", "modelled"))
    if modelled and estimate in ("horvitz-thompson", "self-normalised"):
        raise UnsupportedError(
            f"estimate={estimate!r}: {modelled / rollouts:.1%} of the rollouts of {policy} go to prompts that could "
            "not have been logged at the step, or to groups larger than the logged ones: the log has no answer for "
            "them. Use estimate='doubly robust', which models this part, candidates=1, or a budget with a smaller cap."
        )
    if estimate == "self-normalised":
        value, value_S = _ratio(terms)
    else:
        if estimate == "horvitz-thompson":
            value_S = np.array([horvitz_thompson(x.outcomes_P, x.propensities_P) for x in terms])
        elif estimate == "doubly robust":
            value_S = np.array([doubly_robust(x.outcomes_P, x.propensities_P, x.model_P) + x.alone for x in terms])
        else:
            value_S = np.array([float(x.model_P.sum()) + x.alone for x in terms])
        value = float(value_S.mean())
    error = float(value_S.std(ddof=1)) / len(terms) ** 0.5 if len(terms) > 1 else float("nan")
    return StepValue(value, error, len(terms), rollouts / len(terms), logged / rollouts, modelled / rollouts)


def _ratio(terms: list[_Terms]) -> tuple[float, FloatArray]:
    """The self-normalised estimate over all steps together, and the first-order contribution of each step."""
    value = self_normalised(*(np.concatenate([x[at] for x in terms]) for at in (0, 1))) / len(terms)
    prompts_S = np.array([len(x.outcomes_P) for x in terms])
    sum_S = np.array([horvitz_thompson(x.outcomes_P, x.propensities_P) for x in terms])
    weight_S = np.array([horvitz_thompson(x.outcomes_P * 0 + 1, x.propensities_P) for x in terms])
    mean = value / prompts_S.mean() if prompts_S.any() else 0.0
    return value, prompts_S * mean + prompts_S.mean() / weight_S.mean() * (sum_S - mean * weight_S)

"""What an allocation policy would have been worth at each step of a log that another policy made, had it decided it."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.ids import Id, check_ids, factorize
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import Budget
from budgetalloc.errors import InputError, UnsupportedError, check_choice, check_integer
from budgetalloc.logs.ledger import Ledger
from budgetalloc.offline.offpolicy import all_within, doubly_robust, horvitz_thompson, self_normalised
from budgetalloc.policies import Policy
from budgetalloc.values import mixed_group

Inclusion = Literal["epochs", "independent"]
Estimate = Literal["doubly robust", "horvitz-thompson", "self-normalised", "direct"]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class StepValue:
    """What a policy is worth a step, and what that rests on.

    Args:
        value: Mixed groups a step.
        error: Standard error of `value`, from the spread over steps; that of a biased model is not in it.
        steps: Steps scored.
        rollouts: What the policy gave a step.
        logged: Share of these rollouts that went to prompts logged at the step, in groups no larger than the logged.
        modelled: Share of them of which the log cannot tell (the prompt could not have been logged, or in smaller
            groups only): the model alone answers.
    """

    value: float
    error: float
    steps: int
    rollouts: float
    logged: float
    modelled: float


def one_step_value(
    policy: Policy,
    ledger: Ledger,
    budget: Budget | int | None = None,
    *,
    candidates: int | Literal["all"] | None = None,
    pool: Iterable[Any] | None = None,
    inclusion: Inclusion = "epochs",
    estimate: Estimate = "doubly robust",
    model: BetaEstimator | None = None,
    skip: int = 0,
) -> StepValue:
    """How many groups a step would have been mixed had the policy decided it, in a run that drew prompts uniformly.

    At each step the policy has seen what the run had seen before and decides that one step; then the run goes on as it
    was logged. So it is no answer to what the policy's own history would have led to (for that see `Replay`, which has
    to model what was not logged), but it needs no model where a prompt could have been logged in a group as large.

    Args:
        policy: It is copied. One that decides in rounds is refused.
        ledger: Of a run that gave every prompt of its batch the same number of rollouts.
        budget: Of a step: by default what the run generated. An integer takes the bounds that `simulate` gives it.
        candidates: The prompts on offer, by default what `policy.needs` says: 1, the logged batch; k, k times as many;
            "all", the pool.
        pool: All prompts that the run could draw; by default those of the ledger. Where many prompts were never drawn,
            leaving them out makes those drawn late look more likely than they were.
        inclusion: How the run drew its batches: from shuffled "epochs", as trainers do, so that a prompt met in the
            epoch cannot come again; or each one "independent" of the others.
        estimate: Of `budgetalloc.offline.offpolicy`; or "direct", the model alone.
        model: What "doubly robust" and "direct" expect of a prompt that was not logged, learned from earlier steps; by
            default `BetaEstimator(discount=0.9)`. It is copied. It flatters a policy that maximises the same belief.
        skip: Steps at the start that are observed but not scored.

    Raises:
        InputError: an option out of range, a log that was not drawn as `inclusion` says, or no step to score.
        UnsupportedError: a policy in rounds; groups of different sizes in a step where not all are on offer; an
            estimate without a model where the log cannot tell of a part, with its share.

    >>> import budgetalloc as ba
    >>> rng = np.random.default_rng(0)
    >>> order_S = np.concatenate([rng.permutation(12) for _ in range(50)])  # 50 epochs of three batches of 4 prompts
    >>> ids_R, step_R = np.repeat(order_S, 4), np.repeat(np.arange(150), 16)
    >>> rewards_R = (rng.random(2400) < ids_R / 11) * 1.0
    >>> log = ba.Ledger(step_R, ids_R.tolist(), rewards_R, *np.zeros((3, 2400)))
    >>> found = one_step_value(ba.uniform(), log)
    >>> round(found.value, 2), round(found.error, 2), found.logged
    (2.18, 0.08, 1.0)
    >>> mixed_group(ba.Point(np.arange(12) / 11), [4]).sum().round(2) / 3  # the truth: 4 of 12 prompts at each step
    np.float64(2.18)
    """
    check_choice("inclusion", inclusion, get_args(Inclusion))
    check_choice("estimate", estimate, get_args(Estimate))
    check_integer("skip", skip, 0)
    offer = policy.needs.candidates if candidates is None else candidates
    if offer != "all":
        offer = check_integer("candidates", offer, 1)
    policy = copy.deepcopy(policy)
    belief = BetaEstimator(discount=0.9) if model is None else copy.deepcopy(model)
    ids, steps = _steps(ledger, [] if pool is None else check_ids(pool, "pool"))
    could_S = _could_be_logged(steps, len(ids), inclusion) if offer != 1 else [step.at_P for step in steps]
    terms: list[_Terms] = []
    for step, could_P in zip(steps, could_S, strict=True):
        if step.number >= skip and not np.isnan(step.rewards_R).all():
            offered_P = _offered(step, could_P, len(ids), offer, policy.seed)
            limit = _limit(budget, len(step.at_R), len(step.at_P), offer)
            terms.append(_decide(policy, belief, ids, step, could_P, offered_P, limit))
        ids_R = [ids[at] for at in step.at_R.tolist()]
        policy.observe(ids_R, step.rewards_R)
        belief.observe(ids_R, step.rewards_R)
        belief.tick()
    if not terms:
        raise InputError(f"skip={skip!r}: the log has {len(steps)} steps, none with a reward is left to score.")
    return _value(terms, estimate, policy)


class _LoggedStep(NamedTuple):
    number: int  # from 0
    at_R: Ints  # the place in the pool of each rollout
    rewards_R: FloatArray
    at_P: Ints  # the batch
    size_P: Ints  # its groups, with rollouts that have no reward


class _Terms(NamedTuple):
    """One step: what estimators need of the prompts that got a group of two or more, and of which one could tell."""

    outcomes_P: FloatArray  # NaN where not logged
    propensities_P: FloatArray
    model_P: FloatArray
    alone: float  # what the model expects of the prompts of which the log cannot tell
    rollouts: int
    logged: int
    modelled: int


def _steps(ledger: Ledger, pool: list[Id]) -> tuple[list[Id], list[_LoggedStep]]:
    """The pool and the other prompts of the ledger, and its steps in order."""
    rewards_R = np.asarray(ledger.rewards_R, dtype=np.float64)
    ids, at_R = factorize([*pool, *check_ids(ledger.ids_R, "ledger.ids_R")])
    at_R = at_R[len(pool) :]
    order = np.argsort(np.asarray(ledger.step_R), kind="stable")
    opens = np.flatnonzero(np.diff(np.asarray(ledger.step_R)[order])) + 1
    found = []
    for number, rows in enumerate(np.split(order, opens) if len(order) else []):
        at_P, size_P = np.unique(at_R[rows], return_counts=True)
        found.append(_LoggedStep(number, at_R[rows], rewards_R[rows], at_P, size_P))
    return ids, found


def _could_be_logged(steps: list[_LoggedStep], pool: int, inclusion: Inclusion) -> list[Ints]:
    """Of each step, the prompts of which its batch was a uniform draw; raises `InputError` where the log denies it."""
    if inclusion == "independent":
        pairs = list(pairwise(steps))
        expected = sum(len(one.at_P) * len(other.at_P) for one, other in pairs) / pool
        again = sum(int(np.isin(one.at_P, other.at_P).sum()) for one, other in pairs)
        if again < expected - 5 * expected**0.5:
            raise InputError(
                f"inclusion='independent': in {len(steps)} steps {again} times a prompt comes again at the next one, "
                f"where independent draws give about {expected:.0f}. Use inclusion='epochs'."
            )
        return [np.arange(pool)] * len(steps)
    met_P, found = np.zeros(pool, dtype=bool), []
    for step in steps:
        if met_P[step.at_P].any():
            if met_P.mean() < 0.5:
                raise InputError(
                    f"inclusion='epochs': at step {step.number} a prompt comes again when {met_P.mean():.0%} of all "
                    "have been met. Use inclusion='independent' if each batch was drawn for itself."
                )
            met_P[:] = False
        found.append(np.flatnonzero(~met_P))
        met_P[step.at_P] = True
    return found


def _offered(step: _LoggedStep, could_P: Ints, pool: int, offer: int | Literal["all"], seed: int) -> Ints:
    if offer == "all":
        return np.arange(pool)
    others = np.random.default_rng([seed, step.number, 2]).permutation(np.setdiff1d(could_P, step.at_P))
    return np.concatenate([step.at_P, others[: (offer - 1) * len(step.at_P)]])


def _limit(budget: Budget | int | None, rollouts: int, prompts: int, offer: int | Literal["all"]) -> Budget:
    if isinstance(budget, Budget):
        return budget
    rollouts = rollouts if budget is None else check_integer("budget", budget, 1)
    return Budget(rollouts, floor=2 if offer == 1 else 0, cap=max(8 * rollouts // prompts, 2))


def _decide(
    policy: Policy,
    belief: BetaEstimator,
    ids: list[Id],
    step: _LoggedStep,
    could_P: Ints,
    offered_P: Ints,
    limit: Budget,
) -> _Terms:
    """What the policy asks for at this step, and what the log and the model say of it. `_P` are the prompts offered."""
    ids_P = [ids[at] for at in offered_P.tolist()]
    asked = policy.begin(ids_P, limit)
    counts_P = asked.request()
    if asked.request().any():
        raise UnsupportedError(
            f"{policy} decides in rounds: what it asks for depends on rewards of the step that were not logged. Use "
            "ba.Replay."
        )
    possible_P = np.isin(offered_P, could_P)
    propensity = len(step.at_P) / int(possible_P.sum())
    place = np.full(len(ids), -1)
    place[step.at_P] = np.arange(len(step.at_P))
    row_P = place[offered_P]  # in the batch, -1 outside
    if propensity < 1 and step.size_P.min() < step.size_P.max():
        raise UnsupportedError(
            f"Step {step.number} of the log has groups of {step.size_P.min()} to {step.size_P.max()} rollouts: of "
            "prompts outside the batch it is not known how many they would have had. Use candidates=1, or ba.Replay."
        )
    largest_P = np.where(row_P >= 0, step.size_P[row_P], step.size_P[0])
    tells_P = (counts_P > 1) & possible_P & (counts_P <= largest_P)
    alone_P = (counts_P > 1) & ~tells_P
    outcomes_P = _mixed(step, place, np.where(row_P >= 0, counts_P, 0), row_P)
    values_PN = mixed_group(belief.belief(ids_P), np.arange(int(counts_P.max(initial=0)) + 1))
    model_P = values_PN[np.arange(len(ids_P)), counts_P]
    return _Terms(
        outcomes_P[tells_P],
        np.full(int(tells_P.sum()), propensity),
        model_P[tells_P],
        float(model_P[alone_P].sum()),
        int(counts_P.sum()),
        int(counts_P[tells_P & ~np.isnan(outcomes_P)].sum()),
        int(counts_P[alone_P].sum()),
    )


def _mixed(step: _LoggedStep, place: Ints, counts_P: Ints, row_P: Ints) -> FloatArray:
    """The estimate of P(rewards of a group of this many are unequal), shape (P,); NaN where too few were logged."""
    scored_R = ~np.isnan(step.rewards_R)
    group_R = place[step.at_R[scored_R]]
    scored_G = np.bincount(group_R, minlength=len(step.at_P))
    counts_G = np.zeros(len(step.at_P), dtype=np.int64)
    counts_G[row_P[row_P >= 0]] = counts_P[row_P >= 0]
    value_R = np.unique(step.rewards_R[scored_R], return_inverse=True)[1]
    part_V, size_V = np.unique(np.stack([group_R, value_R]), axis=1, return_counts=True)
    fits_V = scored_G[part_V[0]] >= counts_G[part_V[0]]
    part_V, size_V = part_V[0][fits_V], size_V[fits_V]  # of each value in a group: the group, and how often
    equal_V = all_within(size_V, scored_G[part_V], counts_G[part_V])
    equal_G = np.bincount(part_V, weights=equal_V, minlength=len(step.at_P))
    mixed_G = np.where(scored_G >= np.maximum(counts_G, 1), 1.0 - equal_G, np.nan)
    return np.where(row_P >= 0, mixed_G[row_P], np.nan)


def _value(terms: list[_Terms], estimate: Estimate, policy: Policy) -> StepValue:
    rollouts, logged, modelled = (sum(getattr(x, name) for x in terms) for name in ("rollouts", "logged", "modelled"))
    if modelled and estimate in ("horvitz-thompson", "self-normalised"):
        raise UnsupportedError(
            f"estimate={estimate!r}: {modelled / rollouts:.1%} of the rollouts of {policy} go to prompts that could "
            "not have been logged at the step, or in groups larger than the logged: of them the log says nothing. Use "
            "estimate='doubly robust', which has a model for this part, candidates=1, or a budget with a smaller cap."
        )
    if estimate == "self-normalised":
        value, value_S = _ratio(terms)
    else:
        value_S = np.array([_estimated(x, estimate) for x in terms])
        value = float(value_S.mean())
    error = float(value_S.std(ddof=1)) / len(terms) ** 0.5 if len(terms) > 1 else float("nan")
    return StepValue(value, error, len(terms), rollouts / len(terms), logged / rollouts, modelled / rollouts)


def _estimated(x: _Terms, estimate: Estimate) -> float:
    if estimate == "horvitz-thompson":
        return horvitz_thompson(x.outcomes_P, x.propensities_P)
    if estimate == "direct":
        return float(x.model_P.sum()) + x.alone
    return doubly_robust(x.outcomes_P, x.propensities_P, x.model_P) + x.alone


def _ratio(terms: list[_Terms]) -> tuple[float, FloatArray]:
    """The self-normalised estimate over all steps together, and what each step has in it to first order."""
    value = self_normalised(*(np.concatenate([x[at] for x in terms]) for at in (0, 1))) / len(terms)
    prompts_S = np.array([len(x.outcomes_P) for x in terms])
    sum_S = np.array([horvitz_thompson(x.outcomes_P, x.propensities_P) for x in terms])
    weight_S = np.array([horvitz_thompson(x.outcomes_P * 0 + 1, x.propensities_P) for x in terms])
    mean = value / prompts_S.mean() if prompts_S.any() else 0.0
    return value, prompts_S * mean + prompts_S.mean() / weight_S.mean() * (sum_S - mean * weight_S)

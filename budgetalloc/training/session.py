"""A policy in a training run, step by step: begin, request, observe, end."""

import logging
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.expected_reward import GROUP
from budgetalloc.beliefs.ids import Id, Pool, check_ids, factorize
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import LARGEST_REWARD, merge_near_ties, without_infinite
from budgetalloc.beliefs.state import load_state, loaded, save_state
from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import (
    MOST,
    InputError,
    UnsupportedError,
    check_array,
    nearest_name,
    short_repr,
)
from budgetalloc.logs.ledger_writer import check_ledger
from budgetalloc.policies import Policy, Step
from budgetalloc.policies.adaptive import uniform_groups
from budgetalloc.policies.rollouts import Rollouts, sums_of
from budgetalloc.training.log_writer import LogWriter
from budgetalloc.training.metrics import metrics_of
from budgetalloc.training.options import Options, other_scale
from budgetalloc.training.parts import Host, Part, Plan
from budgetalloc.training.policy_like import PolicyLike, resolve_policy
from budgetalloc.training.single_thread import Exclusive
from budgetalloc.training.success import Measure

logger = logging.getLogger(__name__)
_OTHERS = ("pool", "ledger", "texts", "at_once", "trainer_scale", "quiet", "parts", "resolved")
_P = TypeVar("_P", bound=Part)
_COLD_STEPS = 20


@dataclass(frozen=True, eq=False)
class StepResult:
    """The result of a finished step.

    Args:
        batch: The record of the step; None if no rollout was observed.
        advantages_R: The advantages of all its rollouts in the order observed, shape (R,).
        kept_R: The indices of the rollouts to train on: all, unless the policy generates more than
            it trains on.
        metrics: Metrics by name.
    """

    batch: Rollouts | None
    advantages_R: FloatArray
    kept_R: IntArray
    metrics: dict[str, float]


@dataclass(eq=False)
class _Open:
    """A step that has begun and not ended: the policy's step, which holds the rollouts observed,
    and how many to train on, and the trainer's group size."""

    step: Step
    rollouts: int
    group: int
    groups_R: list[Any] = field(default_factory=list)  # of the trainer
    measure: Measure | None = None  # from the first rollouts on
    record: Rollouts | None = None  # if it is up to date
    wanted: int = 0  # rollouts of the last request, until some are observed
    infinite: list[str] = field(default_factory=list)  # what gave infinite rewards


class Session:
    """Runs a policy through the steps of a training: `begin`, then `request` and `observe` until
    nothing is requested, then `end`, from which the policy learns.

    Every trainer adapter uses a session, and your own training loop can use one. Calls in the wrong
    order and rollouts that were not requested raise an error at that call, and the step can go on.
    A session belongs to the process that created it, and serves one thread at a time. Calls from a
    fork or from a second thread raise an error.

    Args:
        policy: The policy, the name of a method, or a function that builds a policy. Its beliefs
            change with each step.
        rewards: The names of a rollout's rewards.
        weights: The weight of each reward in the total reward, which the trainer maximises. By
            default the first has weight 1 and the others 0.
        pool: The distinct prompts of the dataset, for a policy that chooses among them.
        ledger: A file to which each step is appended.
        texts: The text of each prompt by id, for the file of texts next to the ledger.
        at_once: Whether the loop generates once a step and trains on all rollouts. `growing` then
            decides once, and other policies are refused.
        trainer_scale: The trainer's own scale of advantages, as in `group_advantages`. One that is
            not "group" holds, unless `options` has a scale. By default "group" if the policy asks
            for a scale, else "none".
        quiet: Whether to suppress log messages.
        parts: What else takes part in each step (`Part`).
        resolved: Resolved options, for trainer adapters, which call `attach` themselves. It cannot
            be combined with `trainer_scale` or `options`.
        options: The fields of `Options` by name.

    >>> import budgetalloc as ba
    >>> session = Session(ba.uniform(), ["reward"])
    >>> session.begin(["a", "b"], rollouts=4, group=2)
    >>> while ids_R := session.request():
    ...     print(ids_R)
    ...     session.observe(ids_R, [1, 0, 1, 1], lengths_R=[5, 7, 9, 3])
    ['a', 'a', 'b', 'b']
    >>> session.end().advantages_R
    array([ 0.5, -0.5,  0. ,  0. ])
    """

    def __init__(
        self,
        policy: PolicyLike,
        rewards: Sequence[str],
        weights: Sequence[float] | None = None,
        *,
        pool: Sequence[Id] = (),
        ledger: str | PathLike[str] | None = None,
        texts: Mapping[Id, str] | None = None,
        at_once: bool = False,
        trainer_scale: str | None = None,
        quiet: bool = False,
        parts: Sequence[Part] = (),
        resolved: Options | None = None,
        **options: Any,
    ) -> None:
        if resolved is not None and (options or trainer_scale is not None):
            raise InputError(
                "Session(resolved=) replaces trainer_scale= and all options: pass one or the other."
            )
        check_ledger(ledger)
        self.policy: Policy = resolve_policy(policy)
        self.quiet = quiet
        if resolved is None:
            needs = self.policy.needs
            own = trainer_scale or ("group" if needs.scale else "none")
            self.options = Options.resolve(needs, own, options, trl=False, others=_OTHERS)
        else:
            self.options = resolved
        weights = [1.0] + [0.0] * (len(rewards) - 1) if weights is None else weights
        self.scoring = self.options.scoring(rewards, weights, quiet)
        self.pool, self.pool_size = (Pool.of(pool) if len(pool) else ()), len(pool)
        self.parts: list[Part] = [*self.options.parts(), *parts]
        self.written: list[LogWriter] = []  # writers that append each finished step to files
        self._ledger, self._texts, self._at_once = ledger, texts or {}, at_once
        self.once = at_once
        """Whether a step's rewards come only after it: `growing` then decides once, which is
        logged."""
        self._alone, self._suspended = Exclusive(), list[_Open]()
        self._now: _Open | None = None
        self._cold = 0  # steps in a row with new prompts only
        self._said_once = False  # whether a policy in rounds decides once
        self._infinite = False  # whether an infinite reward was reported
        if resolved is None:
            self.attach(Host())

    def attach(self, host: Host) -> None:
        """Attaches the parts to a trainer; raises if one of them cannot work there."""
        for part in self.parts:
            part.attach(self, host)
        own = self.options.bounds.candidates != "all"
        self.from_loader = own or any(part.from_loader for part in self.parts)
        """Whether a step needs the prompts of the loader's batch."""
        self.prompt_lengths = any(part.prompt_lengths for part in self.parts)
        """Whether a part needs the lengths of prompts."""
        self.reports = tuple(dict.fromkeys(x for part in self.parts for x in part.reports))
        """The names of what rollouts are to report, for the parts."""

    def part(self, kind: type[_P]) -> _P:
        """The part of this class; raises `KeyError` without one."""
        for part in self.parts:
            if isinstance(part, kind):
                return part
        raise KeyError(kind.__name__)

    # --- a step

    @property
    def _open(self) -> _Open:
        if self._now is None:
            raise InputError("No step has begun: call begin(own_ids, rollouts, group) first.")
        return self._now

    @property
    def step(self) -> Step:
        """The policy's current step; raises `InputError` if there is none."""
        return self._open.step

    @property
    def number(self) -> int:
        """The number of the next step to begin, from 0: the steps that have ended or are
        suspended."""
        return self.policy.estimator.step + len(self._suspended)

    @property
    def uniform(self) -> bool:
        """Whether the next step has uniform groups, because success is not chosen yet or a part
        asks for them (`UniformFallback`)."""
        waits = self.scoring.rule is None and not self.options.keep_batch
        return waits or any(part.uniform for part in self.parts)

    def begin(self, own_ids: Sequence[Id], rollouts: int, group: int) -> None:
        """Begins the next step. An unfinished step is dropped, and the policy does not learn from
        it.

        Args:
            own_ids: The prompt of each row of the trainer's batch; unused with `candidates="all"`.
            rollouts: Rollouts that the step trains on.
            group: Rollouts per prompt of the trainer without a policy.

        Raises:
            BudgetError: so many rollouts cannot be spent. UnsupportedError: the loop cannot serve
                this policy.
        """
        with self._alone("begin()"):
            bounds = self.options.bounds
            if bounds.candidates != 1 and not self.pool_size and not len(self.pool):
                raise InputError(
                    f"candidates={bounds.candidates!r}, as {self.policy} asks for, needs the pool: "
                    "pass Session(pool=) with all prompts, or candidates=1.",
                    argument="pool",
                )
            batch_P = [] if bounds.candidates == "all" else factorize(own_ids)[0]
            ids_P = bounds.offer(batch_P, self.pool, self.policy.seed, self.number)
            generated = rollouts * (1 if self.uniform else self.options.generate)
            budget = bounds.budget(generated, len(ids_P), group)
            self._begin(Plan(ids_P, budget, own_ids, rollouts, group))

    def begin_among(self, ids_P: Sequence[Id], budget: Budget, rollouts: int, group: int) -> None:
        """Begins the next step among these candidates and with this budget."""
        with self._alone("begin_among()"):
            self._begin(Plan(ids_P, budget, [], rollouts, group, fixed=True))

    def _begin(self, plan: Plan) -> None:
        """Begins the policy's step as planned, after all parts have been asked."""
        if self.uniform:
            plan = replace(plan, decide=uniform_groups(plan.group))
        for part in self.parts:
            plan = part.plan(plan)
        step = self.policy.begin(
            plan.ids_P,
            plan.budget,
            plan.costs,
            plan.domains_P,
            decide=plan.decide,
            ahead=len(self._suspended),
            resolution=self.options.resolution,
            once=self.once,
        )
        self._say_once(step)
        if self._at_once and (step.in_rounds() or self.options.generate > 1):
            rounds = "decides in rounds"
            more = "generates more rollouts than it trains on"
            raise UnsupportedError(
                f"{self.policy} {rounds if step.in_rounds() else more}; this trainer trains at "
                "once on all that it generates."
            )
        # only now: `load` may have set the policy's step
        if self._ledger is not None and not self.written:
            texts = partial(_known, self._texts)
            self.written = [LogWriter(self._ledger, self.policy.estimator.step, texts)]
        self._now = _Open(step, plan.rollouts, plan.group)

    def _say_once(self, step: Step) -> None:
        """Logs in the first step that a policy in rounds decides once, if it does."""
        if self._said_once or self.quiet or not (self.once or step.budget.quotas):
            return
        self._said_once = True
        own = replace(step.budget, quotas=None), None, None
        if not step.in_rounds() and self.policy.begin(step.ids_P, *own).in_rounds():
            logger.warning(
                "%s decides once a step here, without rounds: %s.",
                self.policy,
                "rewards come only after a step" if self.once else "quotas are kept at once",
            )

    def follow(self, rewards: Sequence[str], weights: Sequence[float]) -> None:
        """Takes the rewards and weights of the next step, if the trainer's may change while it
        trains."""
        self.scoring.follow(rewards, weights)

    def follow_scale(self, trainer_scale: str) -> None:
        """Takes the trainer's scale of advantages for the next step, as `follow`."""
        if trainer_scale != self.options.trainer_scale:
            needs, asked = self.options.needs, self.options.asked
            self.options = Options.resolve(needs, trainer_scale, asked)
            if not self.quiet and (other := other_scale(self.policy, self.options)):
                logger.warning("%s", other)

    def suspend(self) -> None:
        """Suspends the current step, so that the next one can begin before its rollouts are
        there."""
        with self._alone("suspend()"):
            self._suspended.append(self._open)
            self._suspended.sort(key=lambda each: each.step.number)
            self._now = None

    def resume(self) -> None:
        """Goes on with the oldest suspended step; an unfinished step is dropped. Raises
        `InputError` without one."""
        with self._alone("resume()"):
            if not self._suspended:
                raise InputError(
                    "resume() without a suspended step: call suspend() after request() first."
                )
            self._now = self._suspended.pop(0)

    def restart(self) -> None:
        """Begins the current step again, with nothing requested and nothing observed."""
        self._now = _Open(self._open.step.again(), self._open.rollouts, self._open.group)

    def request(self, running: Collection[Id] = ()) -> list[Id]:
        """The prompt of each rollout to generate next; empty when the step is complete, or waits
        for prompts `running` (`Step.request`). Raises `InputError` if no rollout of the last
        request was observed."""
        with self._alone("request()"):
            now = self._open
            step = now.step
            if now.wanted:
                raise InputError(
                    f"request() before observe(): first observe the {now.wanted} rollouts of the "
                    "last request; if all failed, observe([], [], [])."
                )
            ids_R = step.ids_P.repeat(step.request(running))
            if step.hinted and self.options.hint is None:
                raise UnsupportedError(
                    f"{self.policy} requests rollouts with a hint: pass AdaptiveGRPOCallback(..., "
                    "hint=), a function from a dataset row to the row with the hint in its prompt. "
                    "Other loops cannot add hints."
                )
            now.wanted = len(ids_R)
            return ids_R

    def observe(
        self,
        ids_R: Sequence[Id],
        scores_RF: ArrayLike,
        lengths_R: ArrayLike,
        *,
        rewards_R: FloatArray | None = None,
        prompt_lengths_R: IntArray | None = None,
        costs_R: Mapping[str, Sequence[Any] | ArrayLike] | ArrayLike | None = None,
        groups_R: Sequence[Hashable] | None = None,
    ) -> None:
        """Records rollouts that were requested, in one call or several. Leave out rollouts that
        failed.

        Args:
            ids_R: The prompt of each rollout.
            scores_RF: Its rewards by name, shape (R, F), or (R,) if there is one reward; NaN for a
                missing reward.
            lengths_R: Its length in tokens.
            rewards_R: Its total reward. By default the weighted sum; NaN if every reward with a
                weight is missing.
            prompt_lengths_R: The length of its prompt in tokens, if costs are learned; by default
                0.
            costs_R: What it reported, by the names of `cost=`, such as {"turns": [3, None]}; NaN or
                None for nothing. If `cost=` has one name besides "tokens", its column is enough.
            groups_R: The trainer's group of each rollout, for a trainer whose own advantages are
                used: it may have several groups of one prompt. By default its prompt.

        Raises:
            InputError: the numbers of rows differ, a value is not a number, a prompt is not of this
                step, a prompt has more rollouts than were requested, or no step has begun. The step
                can go on.
        """
        with self._alone("observe()"):
            now, ids_R = self._open, check_ids(ids_R, "ids_R")
            step = now.step
            names, number = list(self.scoring.names), len(ids_R)
            what = f"a number for each rollout and each of {names}"
            scores = check_array("scores_RF", scores_RF, what)
            if scores.size != number * len(names):
                raise InputError(
                    f"scores_RF has shape {scores.shape} for {number} ids and the rewards {names}: "
                    "give a row for each rollout.",
                    argument="scores_RF",
                )
            scores = scores.reshape(number, len(names))
            groups = ids_R if groups_R is None else list(groups_R)
            if len(groups) != number:
                raise InputError("groups_R", f"give a group for each of {number} rollouts.", groups)
            columns: dict[str, NDArray[Any]] = {
                "lengths_R": _tokens("lengths_R", lengths_R, number),
                "reported_RC": np.full((number, len(self.reports)), np.nan),
                "prompt_lengths_R": np.zeros(number, dtype=np.int64),
            }
            if costs_R is not None:
                columns["reported_RC"] = self._reported(costs_R, number)
            if prompt_lengths_R is not None:
                columns["prompt_lengths_R"] = _tokens("prompt_lengths_R", prompt_lengths_R, number)
            if rewards_R is None:
                with np.errstate(invalid="ignore", over="ignore"):
                    rewards_R = self.scoring.total_rewards(scores)
            rewards_R = _of_each("rewards_R", rewards_R, "a number", number)
            places = np.flatnonzero((np.abs(scores) > LARGEST_REWARD).any(axis=0))
            rewards, scores = without_infinite(rewards_R, scores, np.array(self.scoring.weights))
            measure = now.measure or self.scoring.measure(rewards, scores)
            success = np.where(np.isnan(rewards), np.nan, measure.success(rewards, scores))
            step.add(ids_R, rewards_R=rewards, scores_RF=scores, success_R=success, **columns)
            if len(places) or (np.isnan(rewards) & ~np.isnan(rewards_R)).any():
                now.infinite = now.infinite or [repr(names[f]) for f in places] or ["the sum"]
            now.groups_R += groups
            now.measure, now.record, now.wanted = measure, None, 0

    def _reported(self, given: Any, rows: int) -> FloatArray:
        """A column of numbers for each of `reports`, NaN where one is missing, negative, infinite
        or no number."""
        names = self.reports
        if not isinstance(given, Mapping):
            if len(names) != 1:
                raise InputError(
                    f"costs_R is one column, and cost= has prices of {list(names)}: give a column "
                    "for each by name.",
                    argument="costs_R",
                )
            given = {names[0]: given}
        for name, column in given.items():
            if name not in names:
                raise InputError(
                    f"costs_R[{name!r}] has no price{nearest_name(name, names)} Use {list(names)}, "
                    "or add its price to cost=.",
                    argument="costs_R",
                )
            if np.ndim(column) != 1 or len(column) != rows:
                raise InputError(
                    f"costs_R[{name!r}]={short_repr(column)}:",
                    f"give a number for each of the {rows} rollouts.",
                )
        columns_CR = [_numbers(given.get(name, [None] * rows)) for name in names]
        return np.reshape(columns_CR, (len(names), rows)).T

    def record(self, trainer_step: int | None = None) -> Rollouts:
        """The record of the rollouts observed so far, at least one, with `trainer_step` (by default
        the policy's)."""
        now = self._open
        step = now.step
        if now.measure is None:
            raise InputError(
                "The step has no rollouts yet: observe() some, or begin() another step."
            )
        if now.record is not None:
            return now.record
        ended, earlier, rows = self.policy.estimator.step, self.scoring.sums, step.columns()
        reported = dict(zip(self.reports, rows.pop("reported_RC").T, strict=True))
        known = step.known_before(rows.pop("place_R"), rows["success_R"], earlier)
        made = Rollouts(
            group_R=factorize(now.groups_R)[1],
            earlier=earlier,
            reward_range=now.measure.reward_range,
            jump=now.measure.jump,
            group=now.group if now.group > 1 else GROUP,
            step=ended if trainer_step is None else trainer_step,
            policy_step=ended,
            uniform=step.replaced,
            resolution=step.resolution,
            reported=reported,
            **known,
            **rows,
        )
        for part in self.parts:
            made = part.record(made, step)
        self._warn_if_infinite(now.infinite, made.step)
        now.record = made
        return made

    def end(
        self, advantages_R: FloatArray | None = None, kept_R: IntArray | None = None
    ) -> StepResult:
        """Ends the step: writes it to the ledger, and then lets the policy learn from it.

        Args:
            advantages_R: The advantages that are trained on, if the trainer computed them.
            kept_R: The rows that the trainer then trains on. By default all.

        Raises:
            InputError: no step has begun, no rollout was observed, or the policy wants more. The
                step can go on then.
        """
        with self._alone("end()"):
            now = self._open
            step = now.step
            if step.unfinished or now.wanted:
                raise InputError(
                    f"end(): {self.policy} wants more rollouts. Generate and observe what "
                    "request() returns, until it returns nothing; or begin another step, which "
                    "drops this one."
                )
            if now.measure is not None and not step.observed:
                step.end()  # rollouts were observed, and all of them failed
                metrics = {
                    name: x for part in self.parts for name, x in part.learn(None, step).items()
                }
                self._now = None
                return StepResult(None, np.zeros(0), np.zeros(0, dtype=np.int64), metrics)
            batch = self.record()
            measure: Measure = now.measure  # type: ignore[assignment]
            if advantages_R is None:
                kept_R = rows_to_train_on(self.policy, batch, now.rollouts)
                advantages_R = self.options.advantages(batch).values_R
                trained_R = advantages_R[kept_R]
            else:  # those of the rows that the trainer kept
                kept_R = np.arange(len(batch)) if kept_R is None else kept_R
                trained_R = advantages_R
            lost_R = step.belief_of(missing) if (missing := step.missing()) else None
            met = len(self.policy.estimator) / self.pool_size if self.pool_size else None
            every, hints = self.options.metrics == "all", self.options.hint is not None
            metrics = metrics_of(batch, measure, trained_R, lost_R, met, every=every, hints=hints)
            if len(kept_R) != len(batch):
                metrics["generated"] = float(len(batch))
            for write in self.written:
                write(batch)
            self._warn_if_prompts_never_return(step)
            step.end()
            ids_R = [batch.ids_R[at] for at in np.unique(kept_R)]
            for part in self.parts:
                metrics |= part.learn(batch, step) | part.trained(batch.step, ids_R)
            self.scoring.learn(measure, batch.rewards_R, batch.scores_RF, sums_of(batch))
            self._now = None
            return StepResult(batch, advantages_R, kept_R, metrics)

    def _warn_if_infinite(self, names: list[str], step: int) -> None:
        """Says once which rewards of a step are infinite."""
        if names and not self._infinite and not self.quiet:
            self._infinite = True
            logger.warning(
                "Step %d: an infinite reward, from %s. Such a rollout counts as one without a "
                "reward, here and in later steps. Return None where there is no reward.",
                step,
                " and ".join(names),
            )

    def _warn_if_prompts_never_return(self, step: Step) -> None:
        """Says once if the batches of many steps in a row had new prompts only."""
        if self.quiet or self.options.keep_batch or self.options.bounds.candidates != 1:
            return
        self._cold = self._cold + 1 if step.cold_P.all() else 0
        if self._cold == _COLD_STEPS:
            logger.warning(
                "No prompt of the last %d batches had been seen before: with candidates=1 the "
                "policy has no history until the dataset's second epoch, and treats all prompts "
                "alike. Pass candidates='all' to choose among the whole dataset, or attach "
                "uniform().",
                _COLD_STEPS,
            )

    # --- the state

    def save(self, path: str | PathLike[str]) -> None:
        """Saves all that was learned. A run that loads the file goes on as if it had never
        stopped."""
        save_state(path, self.state())

    def load(self, path: str | PathLike[str]) -> None:
        """Loads a file of `save`; raises as `restore`."""
        state, about = load_state(path)
        self.restore(about | state)  # files of 0.4 have the definition of success in `about`

    @property
    def _named_parts(self) -> dict[str, Part]:
        """The parts, each by its class and, of several of one class, its number."""
        found = dict[str, Part]()
        for part in self.parts:
            name = type(part).__name__
            alike = sum(type(x).__name__ == name for x in found.values())
            found[f"{name} {alike + 1}" if alike else name] = part
        return found

    def state(self) -> dict[str, Any]:
        """What `save` writes: all that outlives a step. The definition of success and each part
        have a name space of their own."""
        parts = {name: part.state_dict() for name, part in self._named_parts.items()}
        own = {"scoring": self.scoring.state_dict(), "parts": {k: x for k, x in parts.items() if x}}
        return self.policy.state_dict() | own

    def restore(self, state: dict[str, Any]) -> None:
        """Restores `state()`. If it raises `StateError`, because it does not fit, nothing has
        changed."""
        restored: list[tuple[Any, Any]] = [
            (self.policy, loaded(self.policy, state)),
            (self.scoring, loaded(self.scoring, state.get("scoring", {}))),
        ]
        # a shadow comes last: it restores a session of its own, and does not raise
        named = sorted(self._named_parts.items(), key=lambda each: hasattr(each[1], "session"))
        of_parts = state.get("parts", {})
        restored += [(part, loaded(part, of_parts.get(name, {}))) for name, part in named]
        for now, then in restored:
            vars(now).update(vars(then))


def rows_to_train_on(
    policy: Policy, batch: Rollouts, wanted: int, rewards_R: FloatArray | None = None
) -> IntArray:
    """The indices of the `wanted` rollouts to train on, selected by the policy's `keep`, which may
    select one several times; all if it has no `keep`. `rewards_R` replace the batch's own.

    Raises:
        InputError: `keep` did not return the indices of `wanted` rollouts.
    """
    if policy.keep is None or len(batch) <= wanted:
        return np.arange(len(batch))
    rewards_R = batch.rewards_R if rewards_R is None else rewards_R
    rewards_R = merge_near_ties(rewards_R, batch.ids_R, batch.resolution)
    rows = np.asarray(policy.keep(batch.ids_R, rewards_R, wanted, batch.scores_RF, batch.success_R))
    fits = rows.shape == (wanted,) and rows.dtype.kind in "iu"
    if not fits or (wanted and not (rows.min() >= 0 and rows.max() < len(batch))):
        raise InputError(
            f"keep= of {policy} returned {short_repr(rows.tolist())}: return the indices, from 0 "
            f"to {len(batch) - 1}, of {wanted} of the {len(batch)} rollouts that were generated.",
            argument="keep",
        )
    return rows


def _of_each(name: str, given: Any, what: str, rows: int) -> FloatArray:
    """Numbers of the rollouts. Raises `InputError` unless there is one for each."""
    numbers = check_array(name, given, f"{what} for each rollout")
    if numbers.shape != (rows,):
        raise InputError(name, f"give {what} for each of {rows} rollouts.", given)
    return numbers


def _tokens(name: str, given: Any, rows: int) -> IntArray:
    """Numbers of tokens as integers. Raises `InputError` for one that is missing, negative or
    infinite."""
    lengths = _of_each(name, given, "a number of tokens", rows)
    for row in np.flatnonzero(~((lengths >= 0) & (lengths < MOST))).tolist():
        raise InputError(f"{name}[{row}]", "give a number of tokens.", lengths[row])
    return lengths.astype(np.int64)


def _numbers(column: Any) -> FloatArray:
    """The numbers of at least 0 of a column, NaN for anything else."""

    def number(value: Any) -> float:
        try:
            found = float(value)
        except (TypeError, ValueError, OverflowError):
            return np.nan
        return found if 0 <= found < np.inf else np.nan

    return np.array([number(value) for value in column], dtype=np.float64)


def _known(texts: Mapping[Id, str], ids: Sequence[Id]) -> dict[Id, str]:
    return {name: texts[name] for name in ids if name in texts}

"""A policy in a training run, step by step: begin, request, observe, end."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.beliefs.pool import Pool
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.state import load_state, save_state
from budgetalloc.budget import Budget, IntArray
from budgetalloc.contrib.mixture import Mixture
from budgetalloc.errors import InputError
from budgetalloc.logs.ledger_writer import check_ledger
from budgetalloc.policies import Policy, Step
from budgetalloc.policies.adaptive import uniform_groups
from budgetalloc.policies.quotas import Shares
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.domain_learning import quotas_of_prompts
from budgetalloc.training.downselection import check_trains_at_once, rows_to_train_on
from budgetalloc.training.learned import Learned
from budgetalloc.training.log_writer import LogWriter, known_texts
from budgetalloc.training.open_step import OpenStep, Round, check_rows
from budgetalloc.training.options import Options
from budgetalloc.training.policy_like import PolicyLike, policy_of
from budgetalloc.training.shadow import Shadow, options_to_watch, policy_to_watch
from budgetalloc.training.single_thread import Exclusive

__all__ = ["Ended", "Session"]


@dataclass(frozen=True, eq=False)
class Ended:
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
        at_once: Whether the loop generates once a step and trains on all rollouts. Other policies
            are then refused.
        trainer_scale: The trainer's own scale of advantages, used if neither `options` nor the
            policy names a scale.
        quiet: Whether to suppress log messages.
        shadow: Another policy that watches the run and changes nothing of it (see
            `training.shadow`).
        resolved: Resolved options, for trainer adapters. It cannot be combined with `trainer_scale`
            or `options`.
        domain, quotas, mixture: As in `AdaptiveGRPOCallback`, with the domain of each prompt in
            place of a column.
        options: Arguments of `budgetalloc.trl.AdaptiveGRPOCallback` by their names: candidates,
            floor, cap, min_group, quantum, baseline, scale, weight, success (which may name one of
            `rewards`), reward_range, fallback, cost and cost_per_step.

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
        trainer_scale: str = "none",
        quiet: bool = False,
        shadow: PolicyLike | None = None,
        resolved: Options | None = None,
        domain: Mapping[Id, Hashable] | None = None,
        quotas: Shares | None = None,
        mixture: str | Mixture | None = None,
        **options: Any,
    ) -> None:
        if resolved is not None and (options or shadow is not None or trainer_scale != "none"):
            raise InputError(
                "Session(resolved=) replaces trainer_scale= and all options: pass one or the other."
            )
        check_ledger(ledger)
        self.policy: Policy = policy_of(policy)
        self.shadow: Shadow | None = None
        if shadow is not None:
            watcher = policy_to_watch(shadow, self.policy)
            own = options_to_watch(
                watcher, trainer_scale, {"scale": watcher.needs.scale, **options}
            )
            same: dict[str, Any] = {
                "pool": pool,
                "domain": domain,
                "quotas": quotas,
                "mixture": mixture,
            }
            self.shadow = Shadow(
                Session(watcher, rewards, weights, quiet=True, resolved=own, **same), quiet
            )
        self.options = resolved or Options.of_loop(self.policy.needs, trainer_scale, options)
        weights = [1.0] + [0.0] * (len(rewards) - 1) if weights is None else weights
        self.scoring = self.options.scoring(rewards, weights, quiet)
        self.costs = self.options.costs(self.policy, quiet)
        self.quotas = quotas_of_prompts(domain, quotas, mixture)
        # at the first step, whose rollouts are known; adapters check earlier
        self._checked = self.quotas is None
        self.pool, self.pool_size = (Pool.of(pool) if len(pool) else ()), len(pool)
        self.written: list[LogWriter] = []  # writers that append each finished step to files
        self._ledger, self._texts, self._at_once, self._quiet = ledger, texts or {}, at_once, quiet
        self._alone, self._suspended = Exclusive(), list[OpenStep]()
        self._now: OpenStep | None = None

    @property
    def _open(self) -> OpenStep:
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
            policy, bounds, costs, ahead = (
                self.policy,
                self.options.bounds,
                self.costs.of_step,
                len(self._suspended),
            )
            decide = uniform_groups(group) if self.fallen else None
            batch_P = [] if bounds.candidates == "all" else factorize(own_ids)[0]
            if self.shadow is not None:
                self.shadow.offer(own_ids, rollouts, group)
            generated = rollouts * (self.options.generate if decide is None else 1)
            if self.quotas is not None:
                if not self._checked:
                    self.quotas.check(policy, bounds, generated, group)
                    self._checked = True
                step = self.quotas.begin(
                    policy, bounds, batch_P, generated, group, costs, decide, ahead
                )
            else:
                ids_P = bounds.offer(batch_P, self.pool, policy.seed, self.number)
                budget = bounds.budget(generated, len(ids_P), group)
                step = policy.begin(ids_P, budget, costs, decide=decide, ahead=ahead)
            self._set(step, rollouts)

    def follow(self, rewards: Sequence[str], weights: Sequence[float]) -> None:
        """Takes the rewards and weights of the next step, if the trainer's may change while it
        trains."""
        for session in (self, *((self.shadow.session,) if self.shadow else ())):
            session.scoring.follow(rewards, weights)

    def begin_among(self, ids_P: Sequence[Id], budget: Budget, rollouts: int, group: int) -> None:
        """Begins the next step among these candidates and with this budget."""
        with self._alone("begin_among()"):
            decide = uniform_groups(group) if self.fallen else None
            ahead = len(self._suspended)
            self._set(
                self.policy.begin(ids_P, budget, self.costs.of_step, decide=decide, ahead=ahead),
                rollouts,
            )

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

    @property
    def fallen(self) -> bool:
        """Whether the next step has uniform groups because beliefs or advantages are out of bounds
        (`rails`)."""
        return self.scoring.rails is not None and self.scoring.rails.fallen

    def _set(self, step: Step, rollouts: int) -> None:
        if self._at_once:
            check_trains_at_once(self.policy, step, self.options.generate)
        # only now: `load` may have set the policy's step
        if self._ledger is not None and not self.written:
            self.written = [
                LogWriter(
                    self._ledger, self.policy.estimator.step, partial(known_texts, self._texts)
                )
            ]
        self._now = OpenStep(step, rollouts)

    def restart(self) -> None:
        """Begins the current step again, with nothing requested and nothing observed."""
        self._now = OpenStep(self.step.again(), self._open.rollouts)

    def request(self, running: Collection[Id] = ()) -> list[Id]:
        """The prompt of each rollout to generate next; empty when the step is complete, or waits
        for prompts `running` (`Step.request`). Raises `InputError` if no rollout of the last
        request was observed."""
        with self._alone("request()"):
            step = self.step
            self._open.check_observed()
            ids_R = step.ids_P.repeat(step.request(running))
            if step.hinted:
                self.options.check_hint(self.policy)
            self._open.wanted = len(ids_R)
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

        Raises:
            InputError: the numbers of rows differ, a value is not a number, a prompt is not of this
                step, a prompt has more rollouts than were requested, or no step has begun. The step
                can go on.
        """
        with self._alone("observe()"):
            step = self.step
            scores, lengths = check_rows(ids_R, scores_RF, lengths_R, self.scoring.names)
            reported = self.costs.columns(costs_R, len(ids_R))
            rewards_R = self.scoring.total_rewards(scores) if rewards_R is None else rewards_R
            measure = self._open.measure or self.scoring.measure(rewards_R, scores)
            success_R = measure.success(rewards_R, scores)
            columns = lengths, step.hinted, prompt_lengths_R, step.round, reported
            made = Round(list(ids_R), rewards_R, scores, success_R, *columns)
            step.observe(made.ids_R, made.rewards_R, made.success_R, hinted=made.hinted)
            self._open.add(made, measure)

    def record(self, trainer_step: int | None = None) -> Rollouts:
        """The record of the rollouts observed so far, at least one, with `trainer_step` (by default
        the policy's)."""
        at = self.policy.estimator.step if trainer_step is None else trainer_step
        return self._open.record(at, self.scoring.sums, self.costs)

    def end(self, advantages_R: FloatArray | None = None) -> Ended:
        """Ends the step: writes it to the ledger, and then lets the policy learn from it.

        Args:
            advantages_R: The advantages that are trained on, if the trainer computed them.

        Raises:
            InputError: no step has begun, no rollout was observed, or the policy wants more. The
                step can go on then.
        """
        with self._alone("end()"):
            now, step = self._open, self.step
            now.check_complete()
            measure = now.used_measure()
            if now.failed:
                self._now = None
                metrics = self._learned.learn(None, measure, step, self.options, self._quiet)
                return Ended(None, np.zeros(0), np.zeros(0, dtype=np.int64), metrics)
            batch = self.record()
            if advantages_R is None:
                kept_R = rows_to_train_on(self.policy, batch, now.rollouts)
                advantages_R = self.options.advantages(batch).values_R
                trained_R = advantages_R[kept_R]
            else:  # those of the rows that the trainer kept
                kept_R, trained_R = np.arange(len(batch)), advantages_R
            metrics = self._learned.metrics(batch, measure, trained_R, self.options, self.pool_size)
            for write in self.written:
                write(batch)
            metrics |= self._learned.learn(batch, measure, step, self.options, self._quiet)
            self._now = None
            return Ended(batch, advantages_R, kept_R, metrics)

    @property
    def _learned(self) -> Learned:
        return Learned(self.policy, self.scoring, self.costs, self.quotas, self.shadow)

    def save(self, path: str | PathLike[str]) -> None:
        """Saves all that was learned. A run that loads the file goes on as if it had never
        stopped."""
        save_state(path, *self.state())

    def load(self, path: str | PathLike[str]) -> None:
        """Loads a file of `save`; raises as `restore`."""
        self.restore(*load_state(path))

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What `save` writes: all that was learned, and the definition of success in JSON types."""
        return self._learned.state()

    def restore(self, state: dict[str, Any], about: Mapping[str, Any]) -> None:
        """Restores what `load_state` read. If it raises `StateError`, because it does not fit,
        nothing has changed."""
        self._learned.restore(state, about)

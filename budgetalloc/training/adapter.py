"""A policy attached to a training loop: the whole of what an adapter repeats, for loops that run in one process."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.state import load_state, save_state
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, UnsupportedError, check_array, nearest
from budgetalloc.logs.ledger_writer import check_ledger
from budgetalloc.policies import Step
from budgetalloc.policies.methods import PolicyLike, policy_of
from budgetalloc.training.batch import Batch, Round, scored_round
from budgetalloc.training.downselection import rows_to_train_on
from budgetalloc.training.log_writer import LogWriter
from budgetalloc.training.options import PLAIN, Options
from budgetalloc.training.step_end import end_step
from budgetalloc.training.success_measure import Measure


class Attached:
    """Counts before a step; after it advantages, from whose rewards the policy then learns.

    Args:
        policy: The policy, the name of a method, or a function that builds a policy. Its beliefs change with each step.
        rewards: The names of a rollout's rewards; the first is what the trainer maximises.
        trainer_scale: The trainer's own scale of advantages, as in `budgetalloc.group_advantages`, for a policy that
            asks for none.
        at_once: Whether the loop generates a step's rollouts at once and trains on all of them. Policies that decide in
            rounds, or generate more than they train on, are then refused.
        ledger: A file to which each step is appended.
        texts: The prompts by their ids, for the file of texts beside the ledger.
        options: Arguments of `budgetalloc.trl.AdaptiveGRPOCallback` by their names: candidates, floor, cap, min_group,
            quantum, baseline, scale, weight, success (which may name one of `rewards`), reward_range.

    Raises:
        InputError: an unknown option, or one out of range.

    >>> import budgetalloc as ba
    >>> attached = Attached(ba.uniform(), ["reward"])
    >>> attached.begin(["a", "b"], pool=(), rollouts=4, group=2)
    {'a': 2, 'b': 2}
    >>> attached.observe(["a", "a", "b", "b"], [1, 0, 1, 1], lengths_K=[5, 7, 9, 3])  # the step is complete
    {}
    >>> advantages_R, kept_R = attached.end()
    >>> advantages_R, kept_R
    (array([ 0.5, -0.5,  0. ,  0. ]), array([0, 1, 2, 3]))
    """

    def __init__(
        self,
        policy: PolicyLike,
        rewards: Sequence[str],
        trainer_scale: str = "none",
        *,
        at_once: bool = False,
        ledger: str | PathLike[str] | None = None,
        texts: Mapping[Id, str] | None = None,
        **options: Any,
    ) -> None:
        for name in options:
            if name not in PLAIN:
                raise InputError(f"Attached({name}=) is unknown{nearest(name, PLAIN)} Use one of {', '.join(PLAIN)}.")
        check_ledger(ledger)
        self.policy, self.at_once = policy_of(policy), at_once
        scale = {"scale": self.policy.needs.scale}  # the trainer's own holds only where neither names one
        self.options = Options.resolve(self.policy.needs, trainer_scale, scale | options)
        self.scoring = self.options.scoring(rewards, [1.0] + [0.0] * (len(rewards) - 1), quiet=False)
        self._ledger, self._texts, self._log_writers = ledger, texts or {}, list[LogWriter]()
        self._step: Step | None = None
        self._rounds: list[Round] = []
        self._measure: Measure | None = None
        self._rollouts = self._wanted = 0

    @property
    def of_groups(self) -> bool:
        """Whether the advantages are those of groups, so that a trainer with GRPO's advantages can keep its own."""
        return self.options.baseline in (None, "group")

    def begin(self, own_ids: Sequence[Id], pool: Sequence[Id], rollouts: int, group: int) -> dict[Id, int]:
        """The prompts of the next step and the rollouts of each, at least 1. A step that has not ended is dropped.

        Args:
            own_ids: The prompts of the trainer's own batch.
            pool: The distinct prompts of the dataset, for a policy that chooses among them (`options.bounds`).
            rollouts: Rollouts that the step trains on.
            group: Rollouts per prompt of the trainer without a policy.

        Raises:
            UnsupportedError: a policy that such a loop cannot serve.
        """
        given = self.policy, None, own_ids, pool, rollouts, group
        step = self.options.begin(*given, rails=self.scoring.rails)
        if self.at_once and (step.in_rounds() or self.options.generate > 1):
            why = "decides in rounds" if step.in_rounds() else "generates more rollouts than it trains on"
            raise UnsupportedError(f"{self.policy} {why}; this trainer trains at once on all that it generates.")
        counts = self._request(step)
        if (
            self._ledger is not None and not self._log_writers
        ):  # lines of a run that was killed after its last `save` end
            self._log_writers = [LogWriter(self._ledger, self.policy.estimator.step, self._texts_of)]
        self._step, self._rollouts, self._rounds, self._measure = step, rollouts, [], None
        return counts

    def _texts_of(self, ids: Sequence[Id]) -> Mapping[Id, str]:
        return {name: self._texts[name] for name in ids if name in self._texts}

    def _request(self, step: Step) -> dict[Id, int]:
        counts_P = step.request().tolist()
        if step.hinted:
            raise UnsupportedError(f"{self.policy} requests rollouts with a hint, which only the TRL callback can add.")
        self._wanted = sum(counts_P)
        return {name: count for name, count in zip(step.ids_P, counts_P, strict=True) if count}

    def _open(self, call: str) -> Step:
        """The step that has begun; raises `InputError` if there is none."""
        if self._step is None:
            raise InputError(f"{call} before begin(): call begin(own_ids, pool, rollouts, group), which begins a step.")
        return self._step

    def observe(self, ids_K: Sequence[Id], rewards_KF: ArrayLike, lengths_K: ArrayLike) -> dict[Id, int]:
        """Takes the rollouts last requested, without those that failed; returns what to generate next, or nothing.

        Args:
            ids_K: The prompt of each rollout.
            rewards_KF: Its rewards by name, shape (K, F), or (K,) where there is one.
            lengths_K: Its tokens.

        Raises:
            InputError: numbers of rows that differ, what is not a number, a prompt that is not of this step, more
                rollouts of a prompt than were requested, or no step that has begun. The step can go on.
        """
        step = self._open("observe()")
        rows, names = len(ids_K), self.scoring.names
        rewards = check_array("rewards_KF", rewards_KF, f"a number for each rollout and each of {list(names)}")
        lengths = check_array("lengths_K", lengths_K, "a number of tokens for each rollout").astype(np.int64)
        if rewards.size != rows * len(names) or lengths.shape != (rows,):
            raise InputError(
                f"rewards_KF has shape {rewards.shape} and lengths_K {lengths.shape} for {rows} ids and the rewards "
                f"{list(names)}: give a row for each rollout."
            )
        rewards = rewards.reshape(rows, len(names))
        made, measure = scored_round(self.scoring, list(ids_K), rewards, lengths, self._measure)
        step.observe(made.ids_R, made.rewards_R, made.success_R)
        self._rounds.append(made)
        self._measure = measure
        return self._request(step)

    def end(self) -> tuple[FloatArray, IntArray]:
        """Ends the step: the advantages of all its rollouts in the order observed, shape (R,), and which of them to
        train on, by index. The policy learns.

        Raises:
            InputError: no step has begun, none of its rollouts were observed, or the policy decides in rounds and wants
                more rollouts. The step can go on.
        """
        step = self._open("end()")
        if self._measure is None:
            raise InputError("end() before observe(): the step has no rollouts. Let it observe them, or begin another.")
        if self._wanted:
            raise InputError(
                f"end(): {self.policy} decides in rounds and wants {self._wanted} more rollouts. Generate what "
                "observe() returned, and observe it, until it returns nothing; or begin another step, which drops this "
                "one."
            )
        if not any(made.ids_R for made in self._rounds):  # all failed
            step.end()
            self._step = None
            return np.zeros(0), np.zeros(0, dtype=np.int64)
        batch = Batch.of(self._rounds, step, self._measure, self.scoring.sums, self.policy.estimator.step)
        kept_R = rows_to_train_on(self.policy, batch, self._rollouts)
        advantages_R = self.options.advantages(batch).values_R
        end_step(self.policy, step.end, batch, advantages_R[kept_R], self.scoring, log_writers=self._log_writers)
        self._step = None
        return advantages_R, kept_R

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the beliefs and the learned range of rewards: a run that loads them goes on as if it never stopped."""
        save_state(path, self.policy.state_dict(), {"scoring": self.scoring.state_dict()})

    def load(self, path: str | PathLike[str]) -> None:
        """Reads what `save` wrote.

        Raises:
            StateError: a damaged file, or that of another policy's kind.
        """
        state, about = load_state(path)
        self.policy.load_state_dict(state)
        self.scoring.load_state_dict(about.get("scoring", {}), self.policy)

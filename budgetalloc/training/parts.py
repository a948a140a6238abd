"""What takes part in a run and is not the policy: quotas, costs, the fallback to
uniform groups, a policy that watches."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from budgetalloc.beliefs.ids import Id
from budgetalloc.budget import Budget
from budgetalloc.policies import Policy, Step
from budgetalloc.policies.interface import CostOf, Decide
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.clock import Clock
from budgetalloc.training.prompts import Prompts


@dataclass(frozen=True)
class Plan:
    """What the policy is about to be asked; `dataclasses.replace` changes it.

    Args:
        ids_P: The candidate prompts.
        budget: The budget of the step.
        own_ids: The prompt of each row of the loader's batch, if the adapter has one.
        rollouts: The rollouts that the trainer trains on.
        group: The trainer's group size.
        costs: What rollouts are expected to cost, as in `Policy.begin`; None if all cost the same.
        domains_P: The domain of each candidate; None without quotas.
        decide: A rule in place of the policy's, as while it has fallen back; or None.
        fixed: Whether candidates and budget are given, and parts leave them (`begin_among`).
    """

    ids_P: Sequence[Id]
    budget: Budget
    own_ids: Sequence[Id]
    rollouts: int
    group: int
    costs: CostOf | None = None
    domains_P: Sequence[Hashable] | None = None
    decide: Decide | None = None
    fixed: bool = False


@dataclass(frozen=True)
class Host:
    """What a part may know of the trainer that it is attached to.

    Args:
        prompts: The prompts of its dataset; None in a loop of your own.
        sizes: The numbers of rollouts that a step may have; empty if they are not known.
        group: Its group size.
        check: Raises if this policy with these options could not be attached.
        measures_seconds: Whether it runs the clock of parts that have one.
    """

    prompts: Prompts | None = None
    sizes: Sequence[int] = ()
    group: int = 0
    check: Callable[[Policy, Any], None] | None = None
    measures_seconds: bool = False


class Part:
    """Takes part in every step of a session. All methods and attributes may be left as they are.

    A part knows the session and no trainer, so that it works under every trainer. The session calls
    `attach` once, `start` when a training begins, and in each step `plan` before the policy
    decides, `record` when rollouts have come, `learn` after the policy has learned, and `trained`.

    >>> import budgetalloc as ba
    >>> class LongestAnswer(Part):
    ...     def learn(self, rollouts, step):
    ...         return {} if rollouts is None else {"longest": float(rollouts.lengths_R.max())}
    >>> session = ba.Session("adaptive", ["reward"], pool=["a", "b"], parts=[LongestAnswer()])
    >>> session.begin([], rollouts=2, group=2)
    >>> session.observe(session.request(), [0.0, 1.0], lengths_R=[7, 9])
    >>> session.end().metrics["longest"]
    9.0
    """

    reports: Sequence[str] = ()
    """What rollouts are to report, by name: `Session.observe(costs_R=)`."""
    prompt_lengths: bool = False
    """Whether it needs the lengths of prompts."""
    clock: Clock | None = None
    """What an adapter runs during the trainer's own work, or None."""
    uniform: bool = False
    """Whether the next step must have uniform groups."""
    from_loader: bool = False
    """Whether it needs the prompts of the loader's batch."""

    def attach(self, session: Any, host: Host) -> None:
        """Takes what it needs of the session and its host; raises if it cannot work there."""

    def start(self) -> None:
        """A training begins."""

    def plan(self, plan: Plan) -> Plan:
        """The plan of the next step, with what this part asks for."""
        return plan

    def record(self, rollouts: Rollouts, step: Step) -> Rollouts:
        """The record of a step, with the columns that this part fills; must not learn."""
        return rollouts

    def learn(self, rollouts: Rollouts | None, step: Step) -> dict[str, float]:
        """Learns from a step after the policy has, and returns its metrics.

        Args:
            rollouts: The record; None if every rollout failed.
            step: The policy's step, which has ended.
        """
        return {}

    def trained(self, step: int, ids_R: Sequence[Id], **late_R: Sequence[int]) -> dict[str, float]:
        """Notes the prompts of the rollouts that are trained on, in the ledger's step, and returns
        metrics. A trainer that generates ahead tells the `age` of each rollout, the optimizer steps
        since its decision, and its `lag`, the newer versions of the model."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What was learned: arrays, and types of JSON, under keys of its own."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()`; without its keys, learning begins anew. Raises `StateError` if
        the state is damaged. A session loads a copy first, so replace attributes here, and change
        none of their values."""

"""A step of a session that has begun and not ended."""

from dataclasses import dataclass, field, replace

from budgetalloc.beliefs.expected_reward import Sums
from budgetalloc.errors import InputError
from budgetalloc.policies import Step
from budgetalloc.training.batch import Batch, Round
from budgetalloc.training.costs import Costs
from budgetalloc.training.success_measure import Measure

__all__ = ["OpenStep"]


@dataclass(eq=False)
class OpenStep:
    """A step of a session that has begun and not ended.

    Args:
        step: The policy's step.
        rollouts: The rollouts that the trainer trains on.
        rounds: What was observed.
        measure: Maps its rewards to success; None before the first rollouts.
        batch: Its record, if it is up to date.
        wanted: The rollouts of the last request, until some are observed.
    """

    step: Step
    rollouts: int
    rounds: list[Round] = field(default_factory=list)
    measure: Measure | None = None
    batch: Batch | None = None
    wanted: int = 0

    def add(self, made: Round, measure: Measure) -> None:
        """Adds observed rollouts."""
        self.rounds.append(made)
        self.measure, self.batch, self.wanted = measure, None, 0

    def record(self, trainer_step: int, earlier: Sums, costs: Costs) -> Batch:
        """The record of what was observed; raises `InputError` if there is nothing."""
        if self.measure is None:
            raise InputError("end() before observe(): the step has no rollouts. Observe some, or begin another step.")
        if self.batch is None:
            batch = Batch.of(self.rounds, self.step, self.measure, earlier, trainer_step)
            self.batch = replace(batch, costs_R=costs.paid(batch))
        return self.batch

    def check_observed(self) -> None:
        """Raises `InputError` before a request if no rollout of the last one was observed."""
        if self.wanted:
            raise InputError(
                f"request() before observe(): first observe the {self.wanted} rollouts of the last request; if all "
                "failed, observe([], [], [])."
            )

    def check_complete(self) -> None:
        """Raises `InputError` at the end if the policy wants more rollouts."""
        if self.step.unfinished or self.wanted:
            raise InputError(
                f"end(): {self.step.policy} wants more rollouts. Generate and observe what request() returns, until it "
                "returns nothing; or begin another step, which drops this one."
            )

    @property
    def failed(self) -> bool:
        """Whether rollouts were observed, and all of them failed."""
        return self.measure is not None and not any(made.ids_R for made in self.rounds)

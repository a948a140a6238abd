"""Seconds and held-out evaluations of a run, in a small file beside its ledger: a line a step or evaluation."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from budgetalloc.logs.chunk import FAULTS, as_integer, as_number
from budgetalloc.logs.prompt_texts import beside

_MOST = 1 << 28  # bytes of a file that is read


class ProgressWriter:
    """Appends the seconds of each step, and the rewards of held-out evaluations.

    Args:
        ledger: The ledger's path.
        first_step: The trainer's first step from now on: what was written about later steps is void.
        clock: Seconds from any start.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     times = iter([0.0, 2.0, 9.0])  # at the start, and at the end of each step
    ...     writer = ProgressWriter(f"{folder}/ledger.jsonl", 0, clock=lambda: next(times))
    ...     writer.step(0, 0)
    ...     writer.held_out(1, 1, 0.25, took=4.0)  # seven seconds later, of which the evaluation took four
    ...     writer.step(1, 1)
    ...     read_progress(f"{folder}/ledger.jsonl")
    Progress(seconds={0: 2.0, 1: 3.0}, held_out=[(1, 0.25)])
    """

    def __init__(
        self, ledger: str | os.PathLike[str], first_step: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.path = beside(ledger, ".progress")
        self._clock, self._last = clock, clock()
        if self.path.exists():
            self._write({"resumed": first_step})

    def step(self, step: int, decision: int) -> None:
        """Appends the seconds since the step before, without evaluations.

        Args:
            step: The trainer's step.
            decision: The policy's step.
        """
        now = self._clock()
        self._write({"step": step, "decision": decision, "seconds": round(max(now - self._last, 0.0), 3)})
        self._last = now

    def held_out(self, step: int, decisions: int, reward: float, took: float = 0.0) -> None:
        """Appends an evaluation.

        Args:
            step: Steps that the trainer has made.
            decisions: Steps that the policy has made.
            reward: The mean reward on held-out prompts.
            took: Its seconds, which are no part of the step's.
        """
        self._write({"step": step, "decision": decisions, "held_out": reward})
        self._last += took

    def _write(self, record: dict[str, float]) -> None:
        with self.path.open("ab") as file:  # a line torn by a kill is ended first
            file.write((("\n" if file.tell() else "") + json.dumps(record)).encode())


@dataclass(frozen=True)
class Progress:
    """The seconds of each step of the policy, and (steps of the policy before it, reward) of each evaluation."""

    seconds: dict[int, float] = field(default_factory=dict)
    held_out: list[tuple[int, float]] = field(default_factory=list)


def read_progress(ledger: str | os.PathLike[str]) -> Progress:
    """What is beside a ledger; empty where there is nothing. Broken lines are left out."""
    path = beside(Path(ledger), ".progress")
    steps: dict[int, tuple[int, float]] = {}  # trainer's step and value, by the policy's step
    evaluations: dict[int, tuple[int, float]] = {}
    if not path.is_file() or path.stat().st_size > _MOST:
        return Progress()
    for line in path.read_bytes().splitlines():
        try:
            record = json.loads(line)
            if "resumed" in record:
                first = as_integer(record["resumed"])
                steps = {at: x for at, x in steps.items() if x[0] < first}
                evaluations = {at: x for at, x in evaluations.items() if x[0] <= first}
                continue
            at, into = as_integer(record["decision"]), evaluations if "held_out" in record else steps
            value = as_number(record["held_out"] if "held_out" in record else record["seconds"])
            into[at] = as_integer(record["step"]), value
        except FAULTS:
            continue
    return Progress(
        {at: seconds for at, (_, seconds) in sorted(steps.items())},
        [(at, reward) for at, (_, reward) in sorted(evaluations.items())],
    )

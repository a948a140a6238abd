"""Seconds and held-out evaluations of a run, in a small file next to its ledger: a line per step or
evaluation."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from budgetalloc.logs.prompt_texts import append_text, path_next_to, read_records
from budgetalloc.logs.records import FAULTS, as_integer


class ProgressWriter:
    """Appends the seconds of each step, and the rewards of held-out evaluations, to a file next to
    the ledger. Earlier lines about the trainer's `first_step` and later ones are void.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     times = iter([0.0, 2.0, 9.0])  # at the start, and at the end of each step
    ...     writer = ProgressWriter(f"{folder}/ledger.jsonl", 0, clock=lambda: next(times))
    ...     writer.step(0, 0)
    ...     writer.held_out(1, 1, 0.25, took=4.0)  # four of the next seven seconds
    ...     writer.step(1, 1)
    ...     read_progress(f"{folder}/ledger.jsonl")
    Progress(seconds={0: 2.0, 1: 3.0}, held_out={'': [(1, 0.25)]})
    """

    def __init__(
        self,
        ledger: str | os.PathLike[str],
        first_step: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path_next_to(ledger, ".progress")
        self._clock, self._last = clock, clock()
        if self.path.exists():
            self._write({"resumed": first_step})

    def step(self, step: int, decision: int) -> None:
        """Appends the seconds since the previous step, without those of evaluations, for the
        trainer's step and the policy's."""
        now = self._clock()
        seconds = round(max(now - self._last, 0.0), 3)
        self._write({"step": step, "decision": decision, "seconds": seconds})
        self._last = now

    def held_out(
        self, step: int, decisions: int, reward: float, took: float = 0.0, name: str = ""
    ) -> None:
        """Appends an evaluation after these steps of the trainer and of the policy: the mean reward
        on held-out prompts, of the set `name` if there are several. The seconds that it took do not
        count for the step."""
        of_set = {"set": name} if name else {}
        self._write({"step": step, "decision": decisions, "held_out": reward, **of_set})
        self._last += took

    def _write(self, record: dict[str, Any]) -> None:
        append_text(self.path, json.dumps(record))


@dataclass(frozen=True)
class Progress:
    """The seconds and held-out evaluations of a run."""

    seconds: dict[int, float] = field(default_factory=dict)
    """The seconds of each step of the policy."""
    held_out: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """The evaluations on each set, "" for the only one: the steps that the policy had made, and the
    mean reward."""


def read_progress(ledger: str | os.PathLike[str]) -> Progress:
    """The progress file of a ledger, without broken lines; empty if there is no such file."""
    # trainer's step and value, by the policy's step; None for seconds, else an evaluation set
    found: dict[str | None, dict[int, tuple[int, float]]] = {None: {}}
    for record in read_records(path_next_to(ledger, ".progress")):
        try:
            if "resumed" in record:
                first = as_integer(record["resumed"])
                for name, of in found.items():
                    last = first - 1 if name is None else first
                    found[name] = {at: x for at, x in of.items() if x[0] <= last}
                continue
            name = str(record.get("set", "")) if "held_out" in record else None
            value = float(record["seconds" if name is None else "held_out"])
            entry = as_integer(record["step"]), value
            found.setdefault(name, {})[as_integer(record["decision"])] = entry
        except FAULTS:
            continue
    values = {
        name: {at: value for at, (_, value) in sorted(of.items())} for name, of in found.items()
    }
    seconds = values.pop(None)
    return Progress(seconds, {str(name): list(x.items()) for name, x in values.items() if x})

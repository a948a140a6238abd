"""Buffers of responses from earlier steps that are trained on again, bounded in number and in
age."""

from budgetalloc.trl.experimental.buffers.correct_responses import (
    CorrectResponseBuffer,
    Substitution,
)
from budgetalloc.trl.experimental.buffers.response_store import Store, Stored
from budgetalloc.trl.experimental.buffers.selective_samples import SelectiveSampleBuffer

__all__ = ["CorrectResponseBuffer", "SelectiveSampleBuffer", "Store", "Stored", "Substitution"]

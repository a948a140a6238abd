"""Buffers of responses from earlier steps that are trained on again, bounded in number and in age."""

from budgetalloc.trl.experimental.buffers.correct_responses import CorrectResponseBuffer as CorrectResponseBuffer
from budgetalloc.trl.experimental.buffers.correct_responses import Substitution as Substitution
from budgetalloc.trl.experimental.buffers.response_store import Store as Store
from budgetalloc.trl.experimental.buffers.response_store import Stored as Stored
from budgetalloc.trl.experimental.buffers.selective_samples import SelectiveSampleBuffer as SelectiveSampleBuffer

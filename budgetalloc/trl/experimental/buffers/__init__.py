"""Buffers of responses from earlier steps that are trained on again, bounded in number and in age."""

from budgetalloc.trl.experimental.buffers.correct import CorrectResponseBuffer as CorrectResponseBuffer
from budgetalloc.trl.experimental.buffers.correct import Substitution as Substitution
from budgetalloc.trl.experimental.buffers.selective import SelectiveSampleBuffer as SelectiveSampleBuffer
from budgetalloc.trl.experimental.buffers.stored import Store as Store
from budgetalloc.trl.experimental.buffers.stored import Stored as Stored

"""Responses kept from earlier steps, to be trained on again: bounded in number and in age, saved without pickle."""

from budgetalloc.buffers.correct import CorrectResponseBuffer as CorrectResponseBuffer
from budgetalloc.buffers.correct import Substitution as Substitution
from budgetalloc.buffers.selective import SelectiveSampleBuffer as SelectiveSampleBuffer
from budgetalloc.buffers.stored import Store as Store
from budgetalloc.buffers.stored import Stored as Stored

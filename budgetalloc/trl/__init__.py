"""Attaches an allocation policy to TRL's `GRPOTrainer`, or to its `AsyncGRPOTrainer`. Only this package and the testbed
import torch and trl."""

from budgetalloc.trl.callback import AdaptiveGRPOCallback as AdaptiveGRPOCallback
from budgetalloc.trl.checkpoints import last_checkpoint as last_checkpoint
from budgetalloc.trl.experimental.asynchronous import AdaptiveRolloutWorker as AdaptiveRolloutWorker

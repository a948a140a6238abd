"""Rollouts that branch: a `rollout_func` for TRL's `GRPOTrainer`, with advantages by branch."""

from budgetalloc.trl.experimental.trees.rollouts import Trees

__all__ = ["Trees"]

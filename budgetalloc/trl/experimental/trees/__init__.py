"""Rollouts that branch: a `rollout_func` for TRL's `GRPOTrainer`, and advantages by branch."""

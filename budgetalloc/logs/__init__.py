"""Logs of rollouts: the ledger that budgetalloc writes, and readers of trainers' logs."""

"""Logs of rollouts: the ledger that budgetalloc writes, and readers of what trainers write."""

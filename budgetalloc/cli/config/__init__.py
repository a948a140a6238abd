"""`Config` reads policy, budget, estimator and pacing from one YAML file and builds them."""

from budgetalloc.cli.config.config import Config

__all__ = ["Config"]

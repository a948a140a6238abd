"""One YAML file says policy, budget, estimator and pacing; `Config` reads it and builds them."""

from budgetalloc.cli.config.config import Config as Config

"""The worker for TRL's experimental `AsyncGRPOTrainer`, and the reuse of stored responses."""

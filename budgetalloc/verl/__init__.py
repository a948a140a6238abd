"""Lets an allocation policy decide the rollout counts of verl's trainer:
`trainer.v1.trainer_mode=budgetalloc`."""

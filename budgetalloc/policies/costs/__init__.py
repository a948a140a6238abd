"""What rollouts cost, the budget of each step of a run, and a bandit for a setting of a run."""

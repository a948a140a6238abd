"""What rollouts cost, and the budget of each step of a run."""

"""What `budgetalloc doctor` knows of a run before it starts, read from a script or a file and never executed."""

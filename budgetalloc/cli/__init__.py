"""The command line: `budgetalloc check`, `report`, `replay`, `demo`, `methods` and `recipe`."""

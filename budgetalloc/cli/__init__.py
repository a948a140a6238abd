"""The command line: `budgetalloc doctor`, `report`, `replay`, `demo`, `methods`, `config` and `recipe`."""

"""The command line: `budgetalloc doctor`, `watch`, `report`, `replay`, `demo`, `methods`, `config` and `recipe`."""

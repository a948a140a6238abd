"""The command line: `budgetalloc doctor`, `watch`, `report`, `replay`, `demo`, `methods` and `config`."""

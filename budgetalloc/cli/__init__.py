"""The command line: `budgetalloc report`, `replay`, `demo`, `methods` and `config`."""

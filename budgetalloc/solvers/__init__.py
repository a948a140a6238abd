"""How to spend a budget: pure functions `(values_PN, costs_P, budget) -> counts_P`."""

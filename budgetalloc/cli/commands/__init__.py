"""The commands: one module for each, with a function `run` that prints the answer."""

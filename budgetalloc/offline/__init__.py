"""Allocation policies without a trainer: worlds, simulation, replay of a log, comparison."""

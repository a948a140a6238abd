"""Shared parts of methods that generate more rollouts than they train on: equal counts, then a
`downselect` rule.

All generated rollouts count against the budget and are observed, and advantages are computed over
all of them. If a paper computes them over the kept rows, the method's docstring says so. These
methods save updates, not generation.
"""

import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import check_integer, check_seed
from budgetalloc.policies.advantages import group_advantages
from budgetalloc.policies.composition import uniform
from budgetalloc.policies.interface import Keep, Needs
from budgetalloc.policies.policy import Policy

__all__ = ["generate_and_keep", "rng_of_step", "scaled_advantages"]


def generate_and_keep(
    name: str, generate: int, keep: Keep, seed: int, settings: str = ""
) -> Policy:
    """A policy with uniform counts that generates `generate` times the rollouts that it trains
    on."""
    check_integer("generate", generate, 2)
    check_seed(seed)
    name = f"{name}(generate={generate}{settings}, seed={seed})"
    return replace(
        uniform(seed=seed), name=name, needs=Needs(baseline="group", generate=generate), keep=keep
    )


def scaled_advantages(ids_R: Sequence[Id], rewards_R: FloatArray) -> FloatArray:
    """Advantages normalised within each group, NaN without a reward."""
    return np.where(
        np.isnan(rewards_R), np.nan, group_advantages(rewards_R, ids_R, "group", "group")
    )


def rng_of_step(seed: int, ids_R: Sequence[Id], rewards_R: FloatArray) -> np.random.Generator:
    """A generator seeded by the step's ids and rewards: all processes and repetitions draw the
    same."""
    shown = repr(list(ids_R)).encode() + np.ascontiguousarray(rewards_R, dtype=np.float64).tobytes()
    return np.random.default_rng([seed, zlib.crc32(shown)])

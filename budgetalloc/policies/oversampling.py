"""Published methods that generate more than they train on: equal counts, then a rule of `downselect`.

A step generates `generate` times the rollouts that it trains on; all of them count against the budget, and all are
observed. The trainer computes advantages over all generated rollouts; if a paper computes them over the rows kept, the
method's docstring says so. These methods reduce the cost of the update, not of generation.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import check_integer, check_seed
from budgetalloc.policies.advantages import group_advantages
from budgetalloc.policies.composition import uniform
from budgetalloc.policies.decision import Keep, Needs
from budgetalloc.policies.policy import Policy


def generate_and_keep(name: str, generate: int, keep: Callable[..., IntArray], seed: int, settings: str = "") -> Policy:
    """Uniform counts of a budget that is `generate` times the rollouts trained on."""
    check_integer("generate", generate, 2)
    check_seed(seed)
    kept: Keep = keep
    needs = Needs(baseline="group", generate=generate)
    name = f"{name}(generate={generate}{settings}, seed={seed})"
    return replace(uniform(seed=seed), name=name, needs=needs, keep=kept)


def scaled_advantages(ids_R: Sequence[Id], rewards_R: FloatArray) -> FloatArray:
    """Advantages normalised inside each group, NaN without a reward."""
    return np.where(np.isnan(rewards_R), np.nan, group_advantages(rewards_R, ids_R, "group", "group"))


def rng_of_step(seed: int, ids_R: Sequence[Id], rewards_R: FloatArray) -> np.random.Generator:
    """A generator seeded by the step's ids and rewards, so that all processes and every repetition draw the same."""
    shown = repr(list(ids_R)).encode() + np.ascontiguousarray(rewards_R, dtype=np.float64).tobytes()
    return np.random.default_rng([seed, zlib.crc32(shown)])

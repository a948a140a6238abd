"""PVPO: prompts by the mean reward of a reference model."""

import math
from collections.abc import Mapping

import numpy as np

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.memory import Memory
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import check_number, check_type
from budgetalloc.methods.rules import by_chance
from budgetalloc.methods.table import Count, Share, method, policy
from budgetalloc.policies import Policy, View


@method("which prompts", "a description", of_rates=True)
def pvpo(
    *,
    group: Count = 2,
    reference: Mapping[Id, float] | None = None,
    enough: Count = 8,
    demonstrations: bool = False,
    explore: Share = 0.05,
    seed: int = 0,
) -> Policy:
    """Drops prompts that a reference model always solves, and those that it never solves unless the
    trainer adds a demonstration. It is meant to skip prompts whose groups would have no gradient.

    Formula: kept if 0 < m < 1 for the reference mean m, or if m = 0 with a demonstration.

    Source: PVPO (arXiv 2508.21104). Compared with a description only. The baseline is the
    posterior's, where the paper's is the reference mean. The chance to explore is our default.

    With `explore=0`, dropped prompts stay out. Prompts without a reference mean are judged by
    `enough` consecutive rewards of 1 or of 0, our rule; graded success counts as mixed.

    Args:
        reference: Mean reward of the reference model by prompt.
        demonstrations: Whether the trainer adds a demonstration to the group of a prompt of mean 0.

    >>> from budgetalloc import Budget
    >>> reference, budget = {"solved": 1.0, "failed": 0.0, "half": 0.5}, Budget(4, floor=0)
    >>> pvpo(reference=reference, demonstrations=True, seed=0).allocate(reference, budget)
    array([0, 2, 2])
    """
    known = {} if reference is None else reference
    check_type("reference", known, Mapping, "a mapping from a prompt's id to its mean reward")
    for x, rate in known.items():
        check_number(f"reference[{x!r}]", rate, 0, 1)

    def learn(memory: Memory, seen: ByPrompt) -> None:
        # rollouts in a row: above 0 of reward 1, below 0 of reward 0
        run, at_P = memory.columns["run"], memory.rows(seen.ids_P)
        longer_P = np.where(seen.mean_P == 0, np.minimum(run[at_P], 0) - seen.n_P, 0)
        run[at_P] = np.where(seen.mean_P == 1, np.maximum(run[at_P], 0) + seen.n_P, longer_P)

    def chance(view: View) -> FloatArray:
        run_P = view.recall["run"]
        rate_P = np.select([run_P >= enough, run_P <= -enough], [1.0, 0.0], math.nan)
        given_P = np.array([known.get(x, math.nan) for x in view.ids_P], dtype=np.float64)
        rate_P = np.where(np.isnan(given_P), rate_P, given_P)
        return np.where((rate_P != 1) & ((rate_P != 0) | demonstrations), 1.0, explore)

    memory = Memory({"run": 0.0}, learn, lowest={"run": -math.inf})
    needs = {"candidates": "all", "baseline": "posterior", "min_group": 1}
    return policy(by_chance(chance, group), memory=memory, **needs)

"""The steps of a log, and the prompts from which each batch was drawn, for inverse-propensity estimates."""

from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from budgetalloc.beliefs.ids import Id, check_ids, factorize
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError, check_type
from budgetalloc.logs.chunk import Chunk, Ints

__all__ = ["Inclusion", "LoggedStep", "could_be_logged", "logged_steps"]

Inclusion = Literal["epochs", "independent"]


class LoggedStep(NamedTuple):
    number: int  # from 0
    at_R: Ints  # the place in the pool of each rollout
    rewards_R: FloatArray
    success_R: FloatArray  # in [0, 1]
    at_P: Ints  # the batch
    size_P: Ints  # its groups, with rollouts that have no reward


def logged_steps(ledger: Chunk, pool: list[Id]) -> tuple[list[Id], list[LoggedStep]]:
    """The pool and the other prompts of the ledger, and its steps in order."""
    check_type("ledger", ledger, Chunk, "a log, such as ba.Ledger.read(path)")
    rewards_R = np.asarray(ledger.rewards_R, dtype=np.float64)
    ids, at_R = factorize([*pool, *check_ids(ledger.ids_R, "ledger.ids_R")])
    at_R = at_R[len(pool) :]
    order = np.argsort(np.asarray(ledger.step_R), kind="stable")
    opens = np.flatnonzero(np.diff(np.asarray(ledger.step_R)[order])) + 1
    logged = []
    for number, rows in enumerate(np.split(order, opens) if len(order) else []):
        at_P, size_P = np.unique(at_R[rows], return_counts=True)
        logged.append(LoggedStep(number, at_R[rows], rewards_R[rows], ledger.success_R[rows], at_P, size_P))
    return ids, logged


def could_be_logged(steps: list[LoggedStep], pool: int, inclusion: Inclusion) -> list[Ints]:
    """The prompts from which each step's batch was drawn; raises `InputError` if the log contradicts `inclusion`."""
    if inclusion == "independent":
        pairs = list(pairwise(steps))
        expected = sum(len(one.at_P) * len(other.at_P) for one, other in pairs) / pool
        again = sum(int(np.isin(one.at_P, other.at_P).sum()) for one, other in pairs)
        if again < expected - 5 * expected**0.5:
            raise InputError(
                f"inclusion='independent': {again} times in {len(steps)} steps a prompt occurs again at the next step, "
                f"and independent draws would give about {expected:.0f}. Use inclusion='epochs'."
            )
        return [np.arange(pool)] * len(steps)
    seen_P, could_S = np.zeros(pool, dtype=bool), []
    for step in steps:
        if seen_P[step.at_P].any():
            if seen_P.mean() < 0.5:
                raise InputError(
                    f"inclusion='epochs': at step {step.number} a prompt occurs again after only {seen_P.mean():.0%} "
                    "of all prompts. Use inclusion='independent' if each batch was drawn independently."
                )
            seen_P[:] = False
        could_S.append(np.flatnonzero(~seen_P))
        seen_P[step.at_P] = True
    return could_S

"""Retries across steps: a prompt whose rollouts have all failed goes on in the next step."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.memory import Memory
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import BoolArray
from budgetalloc.budget import IntArray, rollouts_alone
from budgetalloc.errors import UnsupportedError, check_integer, check_type, keywords
from budgetalloc.policies.interface import Decide, View, counts_at_once
from budgetalloc.policies.policy import Policy
from budgetalloc.policies.spending import Spending, can_spend


@keywords
def retrying(policy: Policy, *, most: int = 8) -> Policy:
    """Doubles the rollouts of a prompt while all of them fail, from step to step.

    Prompts whose rollouts have all failed come first in the next step, with as many rollouts as
    have failed. `policy` chooses among the other prompts for the rest of the budget. After a
    success, or after `most` failures in a row, a prompt is one of the others again. One that failed
    so often may be hopeless: it is retried only after its next success. Of a prompt that is
    retried, a rollout without a reward counts as a failure.

    A step generates once, where `growing` continues a group within the step and waits for each
    round. NGU (arXiv 2609.13443) continues prompts across steps with a chance.

    Keep the posterior baseline: the belief has learned from the failures of earlier steps, and the
    step does not train on them again. If retries need more than the budget, some of them wait, in a
    random order. With a floor, tokens or quotas in the budget there are no retries. They do not
    weigh costs. While several steps are generated at once, a prompt is retried in each of them.

    Args:
        policy: Chooses the other prompts, in one round. It has no memory of its own.
        most: Failures in a row after which a prompt is not retried, at least 2.

    Raises:
        UnsupportedError: `policy` has a memory of its own, or decides in rounds.

    >>> import budgetalloc as ba
    >>> policy, budget = retrying(ba.uniform()), ba.Budget(rollouts=8, floor=0)
    >>> policy.observe(["easy", "easy", "hard", "hard", "hard"], [0, 1, 0, 0, 0])
    >>> policy.allocate(["easy", "hard", "new"], budget)
    array([3, 3, 2])
    """
    check_type("policy", policy, Policy, "a policy such as policies.sampled()")
    check_integer("most", most, 2)
    if policy.memory is not None:
        raise UnsupportedError(
            f"retrying({policy}) needs a policy without a memory, such as policies.sampled()."
        )

    def learn(memory: Memory, seen: ByPrompt) -> None:
        rows = memory.rows(seen.ids_P)
        failures_P = memory.columns["failures"][rows] + seen.n_P
        memory.columns["failures"][rows] = np.where(seen.successes_P > 0, 0.0, failures_P)
        # also what is never scored ends after `most` rollouts
        lost_U = np.fromiter(memory.unscored.values(), dtype=np.float64)
        rows = memory.rows(memory.unscored)
        failures, known_U = memory.columns["failures"], rows >= 0
        failures[rows[known_U]] += np.where(failures[rows[known_U]] > 0, lost_U[known_U], 0.0)

    def retried(columns: Mapping[str, FloatArray]) -> BoolArray:
        return (columns["failures"] > 0) & (columns["failures"] < most)

    def after_retries(decide: Decide) -> Decide:
        def decide_the_rest(view: View) -> IntArray:
            return counts_at_once(decide, view, f"retrying({policy})")

        def decide_with_retries(view: View) -> IntArray:
            failures_P, retried_P = view.recall["failures"], retried(view.recall)
            waiting = np.flatnonzero(retried_P)  # in the random order of the view
            if not len(waiting) or view.budget.fewest or rollouts_alone(view.budget) is None:
                return decide_the_rest(view)
            spending = Spending(view.budget, len(failures_P))
            spending.give_each(waiting, np.minimum(failures_P, most - failures_P)[waiting])
            others = np.flatnonzero(~retried_P)
            if len(others) and can_spend(view.budget, spending.left, len(others)):
                left = replace(view.budget, rollouts=spending.left)
                spending.counts_P[others] = decide_the_rest(replace(view.take(others), budget=left))
            else:
                spending.spread_rest()
            return spending.counts_P

        return decide_with_retries

    featured = policy.featured
    return replace(
        policy,
        name=f"retrying({policy.name}, most={most})",
        decide=after_retries(policy.decide),
        featured=featured and retrying(featured, most=most),
        memory=Memory({"failures": 0.0}, learn, hold=retried),
        needs=replace(policy.needs, keep_batch=False),
    )

"""Rollouts with the user's hints for prompts whose rollouts all failed."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.ids import Id, check_ids
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_function, check_integer, check_number, check_type
from budgetalloc.policies import Hinted, Policy, View
from budgetalloc.policies.interface import Rounds
from budgetalloc.policies.rounds import followed_by
from budgetalloc.policies.spending import Spending

Hint = Callable[[list[Id]], Iterable[Id] | None]
"""Prompts without a success, most failures first -> those of them that have a hint; None is all."""


def on_all_fail(
    policy: Policy,
    hint: Hint,
    *,
    rollouts: int = 8,
    unhinted: int = 1,
    share: float = 0.125,
    fewest: int = 4,
) -> Policy:
    """Spends part of the budget on rollouts with your hints, for prompts whose rollouts of the step
    all failed.

    The trigger is that of NuRL (arXiv 2509.25666), Guide (2506.13923) and XRPO's seeding
    (2510.06672). The content of a hint, and how the loss treats its tokens, are your choice.

    `policy` spends all but `share` of the budget. Then `hint(ids)` is called once, with every
    prompt whose successes of this step are all 0. Those that it returns get `rollouts - unhinted`
    rollouts in a separate round with `step.hinted` True, as far as the reserve suffices. A last
    plain round gives each `unhinted` rollouts and spends the rest on all prompts.

    Pass the rewards of the separate round with `hinted=True`, else `step.observe` raises
    `InputError`. They count against the budget, but beliefs, memory and trigger ignore them. In
    `group_advantages` hinted rollouts need ids of their own, unless you want groups that mix both
    kinds, as NuRL's do. The new policy starts with a copy of what `policy` has learned.

    Args:
        policy: Decides everything else, with a budget in rollouts.
        hint: Your function. It must return the same result on every process.
        rollouts, unhinted: Further rollouts of such a prompt, at least 1, and how many of them are
            without the hint, 0 to `rollouts - 1`.
        share: Reserved share of the budget, in (0, 1). It is lowered if the rest could not be
            spent.
        fewest: Failures of this step that the trigger needs, at least 1. NuRL needs a whole group.

    >>> import budgetalloc as ba
    >>> ids_P, rates = ["easy", "hard", "lost"], {"easy": 1.0, "hard": 0.0, "lost": 0.0}
    >>> hint = lambda ids: [x for x in ids if x != "lost"]
    >>> policy = on_all_fail(ba.uniform(), hint, rollouts=4, share=0.25)
    >>> step = policy.begin(ids_P, ba.Budget(rollouts=24))
    >>> while (counts_P := step.request()).any():
    ...     print(counts_P, step.hinted)
    ...     ids_R = [x for x, n in zip(ids_P, counts_P, strict=True) for _ in range(n)]
    ...     rewards_R = [1.0 if step.hinted else rates[x] for x in ids_R]  # you would generate
    ...     step.observe(ids_R, rewards_R, hinted=step.hinted)
    [6 6 6] False
    [0 3 0] True
    [1 1 1] False
    """
    check_type("policy", policy, Policy, "a policy such as ba.uniform()")
    check_function("hint", hint, "from a list of prompts to those that it has a hint for")
    check_integer("rollouts", rollouts, 1)
    check_integer("unhinted", unhinted, 0, rollouts - 1)
    check_number("share", share, 0, 1, without=(0, 1))
    check_integer("fewest", fewest, 1)

    def with_hints(view: View, spent_P: IntArray, seen: ByPrompt, reserve: int) -> Rounds:
        budget = replace(view.budget, rollouts=int(spent_P.sum()) + reserve)
        spending = Spending(budget, len(spent_P), spent_P)
        failed_P = (seen.successes_P == 0) & (seen.n_P >= fewest)
        failed = np.flatnonzero(failed_P & (spent_P < budget.largest_group))
        failed = failed[np.argsort(-seen.n_P[failed], kind="stable")]
        ids = [view.ids_P[at] for at in failed.tolist()]
        answer = hint(list(ids)) if ids else []
        wanted = set(ids if answer is None else check_ids(answer, "hint(ids)"))
        if not wanted <= set(ids):
            raise InputError(
                f"hint returned {sorted(map(str, wanted - set(ids)))}: return ids from its "
                "argument only, or None."
            )
        helped = failed[[x in wanted for x in ids]][: max(reserve // rollouts, 1)]
        spending.give_each(helped, rollouts - unhinted)
        hinted_P = spending.counts_P - spent_P
        if hinted_P.any():
            yield Hinted(hinted_P)
        if unhinted:
            spending.give_each(helped, unhinted)
        spending.spread_rest()
        yield spending.counts_P - spent_P - hinted_P

    settings = f"rollouts={rollouts}, unhinted={unhinted}, share={share}, fewest={fewest}"
    return followed_by(policy, with_hints, share, f"on_all_fail({policy.name}, {settings})")

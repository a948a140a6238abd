"""The inputs and outputs of a decision, which policies and trainers share."""

import re
import zlib
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.by_prompt import ByPrompt
from budgetalloc.beliefs.ids import Id, Pool, check_ids
from budgetalloc.beliefs.posterior import Beta, FloatArray
from budgetalloc.budget import Budget, IntArray, rollouts_alone
from budgetalloc.errors import (
    InputError,
    UnsupportedError,
    check_choice,
    check_flag,
    check_integer,
    keywords,
)
from budgetalloc.policies.group_advantages import Baseline, Scale, Weight

_SEEN = 2**17  # prompts of a large pool that a decision sees at least


def _check_candidates(candidates: Any) -> int | Literal["all"]:
    if isinstance(candidates, str) and candidates == "all":
        return "all"
    try:
        return check_integer("candidates", candidates, 1)
    except InputError as error:
        raise InputError("candidates", "use 1, a larger integer or 'all'.", candidates) from error


@keywords
@dataclass(frozen=True)
class Needs:
    """The trainer settings that a policy needs, used where the user gives none (see
    `AdaptiveGRPOCallback`).

    Args:
        candidates: Prompts to choose among: 1, the batch's own; k, k times as many; "all", the
            whole dataset.
        baseline, scale, weight: As in `group_advantages`; `None` is the trainer's own.
        keep_batch: With one candidate, leave the batch unchanged: the policy observes and decides
            nothing.
        generate: Rollouts that a step may generate per rollout that it trains on.
        min_group: Smallest non-empty group; 1 if the baseline does not need groups.
        costs: Whether the decision weighs the cost of rollouts (`View.costs_P`).
        by_group: Whether a decision in rounds may go on when some groups have ended and others have
            not (`ByPrompt.running_P`). Its counts must not depend on which groups ended first.
        part: Prompts for each rollout that a decision has to see, if it draws prompts: a part of a
            large pool, another one at each step, can then stand for all of it (`seen_of`), with
            those that the memory holds. 0 for all prompts.
    """

    candidates: int | Literal["all"] = 1
    baseline: Baseline | None = None
    scale: Scale | None = None
    weight: Weight = "rollout"
    keep_batch: bool = False
    generate: int = 1
    min_group: int = 2
    costs: bool = False
    by_group: bool = False
    part: int = 0

    def __post_init__(self) -> None:
        _check_candidates(self.candidates)
        if self.baseline is not None:
            check_choice("baseline", self.baseline, get_args(Baseline))
        if self.scale is not None:
            check_choice("scale", self.scale, get_args(Scale))
        check_choice("weight", self.weight, get_args(Weight))
        for name in ("keep_batch", "costs", "by_group"):
            check_flag(name, getattr(self, name))
        check_integer("part", self.part, 0)
        for name in ("generate", "min_group"):
            check_integer(name, getattr(self, name), 1)

    def seen_of(self, budget: Budget) -> int | None:
        """About how many prompts of a large pool a decision sees, at least `part` for each rollout;
        None for all: also if other limits than the rollouts may need a prompt that is left out.

        >>> needs = Needs(part=128)
        >>> needs.seen_of(Budget(256, floor=0)), needs.seen_of(Budget(8192, floor=0))
        (131072, 1048576)
        """
        rollouts = rollouts_alone(budget) if self.part else None
        return None if rollouts is None else max(_SEEN, self.part * rollouts)


def function_name(function: Any) -> str:
    """The name of a function, by which ranks and checkpoints compare policies. A lambda has the
    hash of its code, its defaults and the variables that it uses; a partial, its arguments.

    >>> function_name(max), function_name(lambda x: x) == function_name(lambda x: x + 1)
    ('max', False)
    """
    if isinstance(function, partial):
        given = [*map(repr, function.args), *(f"{k}={x!r}" for k, x in function.keywords.items())]
        return f"{function_name(function.func)}({', '.join(given)})"
    name = getattr(function, "__name__", None) or type(function).__name__
    if name != "<lambda>":
        return str(name)
    used = [cell.cell_contents for cell in function.__closure__ or ()]
    parts = [*_of_code(function.__code__), *(function.__defaults__ or ()), *used]
    shown = "\n".join(re.sub(r" at 0x[0-9a-f]+", "", repr(part)) for part in parts)
    return f"lambda {zlib.crc32(shown.encode()):08x}"


def _of_code(code: Any) -> list[Any]:
    """What code does, without where it stands."""
    inner = [_of_code(x) if hasattr(x, "co_code") else x for x in code.co_consts]
    return [code.co_code, code.co_names, code.co_freevars, inner]


@dataclass(frozen=True, eq=False)
class View:
    """The inputs of a decision. The order of the prompts does not depend on the caller's order.

    Args:
        belief_P: Beliefs before the step.
        budget: The budget of the step.
        costs_P: Expected cost of one rollout of each prompt, or None.
        domains_P: The domain of each prompt, or None.
        rng: Seeded by the policy's seed and the step.
        ids_P: The prompts.
        cold_P: Which prompts were never seen.
        step: Steps ended before this one.
        recall: Columns of the policy's memory, one entry per prompt; empty without a memory.
        numbers: Numbers of the policy's memory.
        prior: Pseudo-successes and pseudo-failures that each belief contains.
        prompt_costs_P: Additional cost of each prompt, once a group; None is 0.
        left_out: Prompts of the pool that the decision does not see (`Needs.part`).
        once: Whether the rewards come only after the step, so that the decision gives all counts
            at once if it can (`growing`).

    >>> import budgetalloc as ba
    >>> def decide(view):
    ...     print(list(view.ids_P), view.belief_P.mean, view.cold_P, view.budget.rollouts)
    ...     return np.array([4, 4])
    >>> policy = ba.Policy("halves", decide, ba.BetaEstimator())
    >>> policy.observe(["a"], [1.0])
    >>> policy.allocate(["a", "b"], ba.Budget(rollouts=8))
    ['b', 'a'] [0.5  0.75] [ True False] 8
    array([4, 4])
    """

    belief_P: Beta
    budget: Budget
    costs_P: FloatArray | None
    domains_P: list[Hashable] | None
    rng: np.random.Generator
    ids_P: Sequence[Id]
    cold_P: NDArray[np.bool_]
    step: int
    recall: Mapping[str, FloatArray]
    numbers: Mapping[str, float]
    prior: tuple[float, float]
    prompt_costs_P: FloatArray | None = None
    left_out: int = 0
    once: bool = False

    @property
    def priced(self) -> tuple[FloatArray, FloatArray] | None:
        """The cost of each prompt once a group, and of one rollout; None if unknown or if the
        budget limits tokens."""
        if self.costs_P is None or self.budget.tokens is not None:
            return None
        once_P = self.prompt_costs_P
        return np.zeros(len(self.costs_P)) if once_P is None else once_P, self.costs_P

    def take(self, at_K: IntArray) -> "View":
        """The view of the prompts at these places alone, with the whole budget."""
        rest = Pool.of(self.ids_P).take(at_K)
        domains_P = self.domains_P
        return replace(
            self,
            belief_P=self.belief_P.take(at_K),
            costs_P=None if self.costs_P is None else self.costs_P[at_K],
            domains_P=None if domains_P is None else [domains_P[at] for at in at_K.tolist()],
            ids_P=rest,
            cold_P=self.cold_P[at_K],
            recall={name: column[at_K] for name, column in self.recall.items()},
            prompt_costs_P=None if self.prompt_costs_P is None else self.prompt_costs_P[at_K],
        )

    def rollouts_only(self, what: str) -> int:
        """The rollouts to spend; raises `UnsupportedError` if the budget limits tokens or has
        quotas."""
        if (rollouts := rollouts_alone(self.budget)) is None:
            raise UnsupportedError(
                f"{self.budget}: {what} spends rollouts only. For tokens or quotas use "
                "ba.adaptive(), ba.knapsack() or ba.thompson()."
            )
        return rollouts


@dataclass(frozen=True, eq=False)
class Hinted:
    """Counts of rollouts to generate with the user's hint; a decision in rounds yields this instead
    of plain counts, such as `yield Hinted(np.array([0, 4]))`."""

    counts_P: IntArray


CostOf = Callable[[Sequence[Id], Beta], tuple[FloatArray, FloatArray]]
"""(ids_P, belief_P) -> (cost of each prompt once a group, cost of one rollout), shape (P,) each."""
Rounds = Generator[IntArray | Hinted, ByPrompt, None]
"""A decision in rounds: a generator that yields counts, receives the rollouts so far of the view's
prompts, and returns when it wants no more."""
Decide = Callable[[View], IntArray | Rounds]


def counts_at_once(decide: Decide, view: View, who: str) -> IntArray:
    """The counts of a rule that decides once; raises `UnsupportedError`, which begins with `who`,
    if it decides in rounds."""
    counts_P = decide(view)
    if not isinstance(counts_P, np.ndarray):
        raise UnsupportedError(
            f"{who} needs a policy that decides once a step, such as adaptive()."
        )
    return counts_P


Expect = Callable[[View, ByPrompt], FloatArray]
"""A baseline of the policy's own: from what was known of the step's prompts before it, and its
rollouts, to the expected success of each rollout in [0, 1], NaN for one not to train on."""
Keep = Callable[[Sequence[Id], FloatArray, int, FloatArray | None, FloatArray | None], IntArray]
"""(ids_R, rewards_R, rows, scores_RF by reward function, success_R) -> ascending indices of the
rollouts to train on. If success_R is None, the rewards are the successes."""


@dataclass(frozen=True)
class Bounds:
    """Candidates and bounds of group sizes, as arguments of trainers, simulations and configs.

    Args:
        candidates: Prompts to choose among: 1, the batch's own; k, k times as many; "all", the
            whole dataset.
        floor: Fewest rollouts of each candidate prompt.
        cap: Most rollouts of a prompt; None is 8 times the trainer's group size, or more if there
            are too few prompts.
        min_group: Smallest non-empty group.
        quantum: Counts are multiples of it.

    >>> Bounds.resolve(Needs(candidates="all", min_group=1)).budget(256, prompts=2080, group=8)
    Budget(rollouts=256, tokens=None, floor=0, cap=64, quantum=1, min_group=1, quotas=None)
    """

    candidates: int | Literal["all"]
    floor: int
    cap: int | None
    min_group: int
    quantum: int

    @classmethod
    def resolve(
        cls,
        needs: Needs,
        *,
        candidates: Any = None,
        floor: int | None = None,
        cap: int | None = None,
        min_group: int | None = None,
        quantum: int = 1,
    ) -> "Bounds":
        """The bounds, with the policy's needs as defaults. The default floor is 2 with one
        candidate, else 0.

        Raises:
            InputError: `candidates` is neither a positive integer nor "all", or a bound is no
                integer of at least 1 (0 for the floor).
        """
        candidates = needs.candidates if candidates is None else candidates
        candidates = _check_candidates(candidates)
        check_integer("quantum", quantum, 1)
        for name, value, low in (("floor", floor, 0), ("cap", cap, 1), ("min_group", min_group, 1)):
            if value is not None:
                check_integer(name, value, low)
        return cls(
            candidates=candidates,
            floor=(2 if candidates == 1 else 0) if floor is None else floor,
            cap=cap,
            min_group=needs.min_group if min_group is None else min_group,
            quantum=quantum,
        )

    def budget(self, rollouts: int, prompts: int, group: int) -> Budget:
        """The budget of one step of so many rollouts, spent exactly, on so many candidates.

        `group` is the trainer's group size (`num_generations`). Raises `BudgetError` if the bounds
        contradict `rollouts` or each other.
        """
        check_integer("rollouts", rollouts, 1)
        check_integer("prompts", prompts, 1)
        check_integer("group", group, 0)
        cap, quantum = self.cap, self.quantum
        if cap is None:
            widest = max(8 * group, -(-rollouts // prompts), self.floor, self.min_group)
            cap = -(-widest // quantum) * quantum
        return Budget(
            rollouts, floor=self.floor, cap=cap, quantum=quantum, min_group=self.min_group
        )

    def filled(self, budget: Budget) -> Budget:
        """The budget, with these bounds in place of those that it leaves open.

        >>> Bounds.resolve(Needs(candidates="all", min_group=1)).filled(Budget(rollouts=256, cap=8))
        Budget(rollouts=256, tokens=None, floor=0, cap=8, quantum=1, min_group=1, quotas=None)
        """
        floor, group = budget.floor, budget.min_group
        if group is None:
            group = min(self.min_group, floor or self.min_group)
        if floor is None:
            floor = max(self.floor, group) if self.floor else 0
        return replace(budget, floor=floor, min_group=group)

    def on_offer(self, batch: int, pool: int) -> int:
        """The number of candidates that `offer` returns for a batch and a pool of these sizes."""
        return pool if self.candidates == "all" else min(self.candidates * batch, pool)

    def offer(
        self, batch_P: Sequence[Id], pool_P: Iterable[Id], seed: int, step: int
    ) -> Sequence[Id]:
        """The candidates: the batch, followed by prompts drawn from the pool, or the whole pool.

        Args:
            batch_P: The prompts of the loader's batch, each once.
            pool_P: All prompts, each once, in the same order on every process; a `Pool` is fastest.
            seed, step: Of the policy. The draw depends on them, the batch and the pool.

        >>> pool = ["a", "b", "c", "d", "e"]
        >>> Bounds.resolve(Needs(), candidates=2).offer(["a", "b"], pool, seed=0, step=0)
        ['a', 'b', 'e', 'd']
        """
        if self.candidates == "all":
            return Pool.of(pool_P, "pool_P")
        own = check_ids(batch_P, "batch_P")
        more = (self.candidates - 1) * len(own)
        if not more:
            return own
        pool = Pool.of(pool_P, "pool_P")
        own_K = pool.find(own, "batch_P")
        others_K = np.delete(np.arange(len(pool)), own_K[own_K >= 0])
        order_K = np.random.default_rng([seed, step, 2]).permutation(len(others_K))
        return own + list(pool.take(others_K[order_K[:more]]))


def budget_of_groups(size: int, budget: Budget) -> Budget:
    """The budget with groups of at least this size, within its bounds. With a floor, every prompt
    has a group: itself.

    >>> budget_of_groups(8, Budget(rollouts=64, floor=0, cap=6, quantum=4)).min_group
    4
    """
    if budget.fewest:
        return budget
    least = min(max(size, budget.smallest_group), budget.largest_group)
    return replace(budget, min_group=least - least % budget.quantum)

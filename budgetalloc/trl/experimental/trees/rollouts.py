"""The `rollout_func` that lets rollouts of a prompt branch."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch

from budgetalloc.beliefs.ids import Id
from budgetalloc.errors import (
    InputError,
    UnsupportedError,
    check_choice,
    check_integer,
    check_number,
    check_seed,
)
from budgetalloc.policies import Policy
from budgetalloc.training.options import Options
from budgetalloc.trl.experimental.trees.engines import engine_of
from budgetalloc.trl.experimental.trees.growth import Leaf, grow
from budgetalloc.trl.experimental.trees.splits import (
    aepo_branch_probability,
    aepo_split,
    checked_schedule,
    latr_split,
)

__all__ = ["Trees", "refusals"]


class Trees:
    """Rollouts that branch, as the `rollout_func` of TRL's `GRPOTrainer`. Their tokens get
    advantages by branch.

    Add an `AdaptiveGRPOCallback` too, with any policy; under `uniform()` every prompt has
    `num_generations` rollouts. The policy decides how many rollouts a prompt gets. `roots` of them
    begin at the prompt. The others are branches: where a rollout has one of the lengths `points`,
    it may become two, which share their tokens so far. Each of them is a row of the trainer's
    batch. Tokens are sampled as in plain GRPO, a branch is chosen by what precedes it, and the
    advantages are those of `advantages.branch_advantages`, so the expected gradient is that of the
    expected reward. This assumes advantages without a division by what the step observed
    (`scale="none"`), and a loss that sums over tokens, such as "dapo" or "dr_grpo".

    Shared tokens are generated once. Each rollout reports its share of the tokens as
    `generated_tokens`: the callback's `cost={"generated_tokens": 1}, cost_per_step=` sets a budget
    in generated tokens.

    Args:
        points: The lengths in tokens at which rollouts may branch, increasing; a number n stands
            for n, 2n, 3n, ...
        roots: The share of a prompt's rollouts that begin at the prompt, in (0, 1]. "aepo": the
            share of AEPO (arXiv 2510.14545), with the entropies of the step before, of first blocks
            and of later ones; half in the first step of a run. A schedule by step, such as
            `splits.LATR_MATH`: all but the tree's share (LATR), and one. In any case at least two,
            or the only rollout.
        branch: "even": at each point, as many rollouts branch as may, chosen evenly (TreePO, arXiv
            2508.17445). "entropy": each with the probability `aepo_branch_probability`, whose dH is
            the mean entropy of its last block minus that of its first.
        seed: Of the choices.

    Raises:
        InputError: a bad argument.

    >>> trees = Trees([5, 10, 20], roots=0.25)
    >>> [trees.roots_of(count, step=0) for count in (1, 2, 8, 16)]
    [1, 2, 2, 4]
    """

    def __init__(
        self,
        points: int | Sequence[int],
        *,
        roots: float | Literal["aepo"] | Mapping[int, float] = 0.5,
        branch: Literal["even", "entropy"] = "even",
        seed: int = 0,
    ) -> None:
        each = [points] if isinstance(points, int) else list(points)
        self.points = [check_integer("points", point, 1) for point in each]
        if not each or self.points != sorted(set(self.points)):
            raise InputError(
                f"points={points!r}: give increasing lengths in tokens, such as [64, 128], or one "
                "number."
            )
        self.every = isinstance(points, int)
        if isinstance(roots, Mapping):
            roots = checked_schedule(roots)
        elif roots != "aepo":
            roots = check_number("roots", roots, 0, 1)
            if not roots:
                raise InputError(
                    "roots=0: give a share above 0, such as 0.5, a schedule, or 'aepo'."
                )
        self.roots = roots
        check_choice("branch", branch, ("even", "entropy"))
        self.branch = branch
        self.seed = check_seed(seed)
        self._entropies = (0.0, 0.0)
        self._ids: list[Id] | None = None
        self._leaves: list[Leaf] = []
        self._waves = itertools.count()  # goes on, because the rounds of a step are merged

    def roots_of(self, count: int, step: int) -> int:
        """How many of a prompt's rollouts begin at the prompt."""
        if isinstance(self.roots, Mapping):
            number = latr_split(count, step, self.roots)[1] + 1
        elif self.roots == "aepo":
            number = aepo_split(count, *self._entropies)[0]
        else:
            number = round(count * float(self.roots))
        return min(count, max(2, number))

    def begin(self, ids_R: list[Id]) -> None:
        """Tells the prompt of each row of the next call, in which rows with the same id are one
        group."""
        self._ids = ids_R

    def branches(self, width: int) -> dict[str, torch.Tensor]:
        """The columns of the last call for TRL's batch: the branch of each token, and the weight of
        each leaf."""
        branch_RT = torch.full((len(self._leaves), width), -1, dtype=torch.long)
        for row, leaf in zip(branch_RT, self._leaves, strict=True):
            row[: len(leaf.branch_T)] = torch.tensor(leaf.branch_T)
        return {
            "branch_ids": branch_RT,
            "branch_weights": torch.tensor([leaf.weight for leaf in self._leaves]),
        }

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """The rollouts, as TRL asks for them. Those of an evaluation do not branch."""
        training, ids = trainer.model.training, self._ids
        self._ids = None
        if training and ids is None:
            raise UnsupportedError(
                "Trees computes advantages by branch, which needs an AdaptiveGRPOCallback on the "
                "trainer: "
                "trainer.add_callback(AdaptiveGRPOCallback(trainer, budgetalloc.uniform())), or "
                "with another policy."
            )
        tokens_R = trainer._tokenize_prompts(prompts)[0]
        names = ids if training and ids is not None else range(len(prompts))
        rows_P: dict[Any, list[int]] = {}
        for row, (name, text) in enumerate(zip(names, tokens_R, strict=True)):
            rows_P.setdefault((name, tuple(text)), []).append(row)
        step, longest = trainer.state.global_step, trainer.max_completion_length
        counts_P = [len(rows) for rows in rows_P.values()]
        roots_P = [self.roots_of(count, step) for count in counts_P]
        rng = np.random.default_rng([self.seed, step])
        ends, entropies = (
            set(trainer.eos_token_ids),
            self.branch == "entropy" or self.roots == "aepo",
        )
        leaves_P, tokens = grow(
            engine_of(trainer, entropies),
            [list(text) for _, text in rows_P],
            counts_P,
            roots_P,
            range(self.points[0], longest, self.points[0]) if self.every else self.points,
            longest,
            ends=lambda tokens: tokens[-1] in ends,
            choose=lambda leaves, most: self._choose(leaves, most, rng),
            waves=self._waves,
        )
        placed = {
            row: leaf
            for rows, leaves in zip(rows_P.values(), leaves_P, strict=True)
            for row, leaf in zip(rows, leaves, strict=True)
        }
        leaves = [placed[row] for row in range(len(prompts))]
        if training:
            self._leaves = leaves
            self._note(trainer, leaves, tokens, sum(roots_P), entropies)
        return {
            "prompt_ids": tokens_R,
            "completion_ids": [leaf.tokens for leaf in leaves],
            "logprobs": [leaf.logps for leaf in leaves] if trainer.use_vllm else None,
            "generated_tokens": _shares(leaves),
        }

    def _choose(self, leaves: Sequence[Leaf], most: int, rng: np.random.Generator) -> list[int]:
        order = rng.permutation(len(leaves))
        if self.branch == "entropy":
            change = [leaf.entropies[-1] - leaf.entropies[0] for leaf in leaves]
            chance = aepo_branch_probability(change, [leaf.in_a_row for leaf in leaves])
            order = order[rng.random(len(order)) < chance[order]]
            order = order[np.argsort(-chance[order], kind="stable")]
        return [int(at) for at in order[:most]]

    def _note(
        self, trainer: Any, leaves: list[Leaf], tokens: int, roots: int, entropies: bool
    ) -> None:
        """Logs the step's trees, and keeps the entropies for AEPO's share of roots."""
        alone = sum(len(leaf.tokens) for leaf in leaves)
        logged = {"tokens": tokens, "share": tokens / alone, "roots": roots / len(leaves)}
        for name, value in logged.items():
            trainer._metrics["train"][f"budgetalloc/trees/{name}"].append(value)
        later = [entropy for leaf in leaves for entropy in leaf.entropies[1:]]
        if entropies and later:
            self._entropies = (
                float(np.mean([leaf.entropies[0] for leaf in leaves])),
                float(np.mean(later)),
            )


def _shares(leaves: Sequence[Leaf]) -> list[float]:
    """Each rollout's tokens, of which shared ones are divided evenly. They add up to the tokens
    generated.

    >>> _shares([Leaf(0, 1, 1.0, branch_T=[0, 0, 1]), Leaf(0, 2, 1.0, branch_T=[0, 0, 2, 2])])
    [2.0, 3.0]
    """
    rows: dict[int, int] = {}
    for leaf in leaves:
        for branch in set(leaf.branch_T):
            rows[branch] = rows.get(branch, 0) + 1
    return [sum(1 / rows[branch] for branch in leaf.branch_T) for leaf in leaves]


def refusals(trainer: Any, policy: Policy, options: Options) -> Iterator[UnsupportedError]:
    """The reasons why the branches of a trainer's rollouts would get wrong advantages."""
    acts = getattr(trainer, "tools", None) or getattr(trainer, "environment_factories", None)
    refused = [
        (
            trainer.accelerator.num_processes > 1,
            "several processes, which would each hold a part of a tree",
        ),
        (bool(acts), "tools and environments"),
        (
            getattr(trainer, "use_transformers_continuous_batching", False),
            "use_transformers_continuous_batching=True",
        ),
        (
            trainer.mask_truncated_completions,
            "mask_truncated_completions=True, which masks shared tokens too",
        ),
        (
            policy.keep is not None and options.generate > 1,
            f"{policy}, which trains on some leaves of a tree only",
        ),
        (options.buffer is not None, "buffer=, which replaces leaves"),
        (
            options.baseline in ("batch", "policy"),
            f"baseline={options.baseline!r}: use 'group', 'loo' or 'posterior'",
        ),
    ]
    for applies, what in refused:
        if applies:
            yield UnsupportedError(f"rollout_func=Trees(...) does not work with {what}.")

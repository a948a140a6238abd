"""Rollouts that branch: the `rollout_func` for TRL's `GRPOTrainer`."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.contrib.generation import ends, extended, tokens_of
from budgetalloc.contrib.tree_growth import Leaf, branch_advantages, grow
from budgetalloc.errors import (
    InputError,
    UnsupportedError,
    check_integer,
    check_number,
    check_seed,
)
from budgetalloc.policies import Policy
from budgetalloc.policies.advantages import batch_advantages
from budgetalloc.policies.group_advantages import Baseline
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.options import Options


class Trees:
    """Rollouts that branch, as the `rollout_func` of TRL's `GRPOTrainer`. Their tokens get
    advantages by branch.

    Add an `AdaptiveGRPOCallback` too, with any policy; under `uniform()` every prompt has
    `num_generations` rollouts. The policy decides how many rollouts a prompt gets. `roots` of them
    begin at the prompt. The others are branches: at each of the lengths `points`, as many rollouts
    as may, chosen evenly, become two, which share their tokens so far (TreePO, arXiv 2508.17445).
    Each of them is a row of the trainer's batch. Tokens are sampled as in plain GRPO, a branch is
    chosen by what precedes it, and the advantages are those of `tree_growth.branch_advantages`, so
    the expected gradient is that of the expected reward. This assumes advantages without a division
    by what the step observed (`scale="none"`), and a loss that sums over tokens, such as "dapo" or
    "dr_grpo".

    Shared tokens are generated once; vLLM's prefix cache also saves computing them again. Each
    rollout reports its share of the tokens as `generated_tokens`: the callback's
    `cost={"generated_tokens": 1}, cost_per_step=` sets a budget in generated tokens.

    Args:
        points: The lengths in tokens at which rollouts may branch, increasing; a number n stands
            for n, 2n, 3n, ...
        roots: The share of a prompt's rollouts that begin at the prompt, in (0, 1]; or a schedule,
            the share from each of these steps on, such as {0: 0.1, 100: 0.25, 200: 0.5}, which
            trades branches for separate rollouts as in LATR (arXiv 2510.24302). In any case at
            least two, or the only rollout.
        seed: Of the choices.

    Raises:
        InputError: a bad argument.

    >>> trees = Trees([5, 10, 20], roots={0: 0.25, 100: 0.5})
    >>> [trees.roots_of(count, step=0) for count in (1, 2, 8, 16)], trees.roots_of(16, step=100)
    ([1, 2, 2, 4], 8)
    """

    def __init__(
        self,
        points: int | Sequence[int],
        *,
        roots: float | Mapping[int, float] = 0.5,
        seed: int = 0,
    ) -> None:
        self.every = isinstance(points, int)
        self.points = increasing_lengths("points", points)
        self.roots = dict(roots) if isinstance(roots, Mapping) else {0: roots}
        if 0 not in self.roots:
            raise InputError("roots", "has no share for step 0: add {0: 0.5}.", roots)
        for at, share in self.roots.items():
            check_integer("roots", at, 0)
            check_number("roots", share, 0, 1, without=(0,))
        self.seed = check_seed(seed)
        self._ids: list[Id] | None = None
        self._leaves: list[Leaf] = []
        self._waves = itertools.count()  # goes on, because the rounds of a step are merged

    def roots_of(self, count: int, step: int) -> int:
        """How many of a prompt's rollouts begin at the prompt."""
        share = self.roots[max(at for at in self.roots if at <= step)]
        return min(count, max(2, round(count * share)))

    def refusals(
        self, trainer: Any, policy: Policy, options: Options
    ) -> Iterator[UnsupportedError]:
        """The reasons why the branches of a trainer's rollouts would get wrong advantages."""
        baseline, truncated = options.baseline, trainer.mask_truncated_completions
        refused = {
            "several processes, which each hold a part of a tree": (
                trainer.accelerator.num_processes > 1
            ),
            "tools and environments": (
                getattr(trainer, "tools", None) or getattr(trainer, "environment_factories", None)
            ),
            "use_transformers_continuous_batching=True": (
                getattr(trainer, "use_transformers_continuous_batching", False)
            ),
            "mask_truncated_completions=True, which masks shared tokens too": truncated,
            f"{policy}, which trains on some leaves of a tree only": (
                policy.keep and options.generate > 1
            ),
            "buffer=, which replaces leaves": options.buffer is not None,
            f"baseline={baseline!r}: use 'group', 'loo' or 'posterior'": (
                baseline in ("batch", "policy")
            ),
            "scale='maxrl' with baseline='posterior': use baseline='group'": (
                options.scale == "maxrl" and baseline == "posterior"
            ),
        }
        for what, applies in refused.items():
            if applies:
                name = type(self).__name__
                yield UnsupportedError(f"rollout_func={name}(...) does not work with {what}.")

    def advantages(
        self, batch: Rollouts, options: Options, branch_RT: IntArray, weight_R: FloatArray
    ) -> FloatArray:
        """The advantage of each token, shape (R, T), with the baseline and scale of `options`.

        Under the baseline "posterior", the prompt's history counts as evidence beside its other
        trees. In uniform groups, and where the policy does not divide, the scale is
        `options.own_scale`.
        """
        posterior, history = options.baseline == "posterior" and not batch.uniform, batch.baseline_R
        rollouts = replace(batch, expected_R=history.mean) if posterior else batch
        baseline: Baseline = "policy" if posterior else "group"
        scale = options.scale or "group"
        if batch.uniform or scale == "none":
            scale = options.own_scale
        values_R = batch_advantages(rollouts, baseline, scale, options.weight or "rollout").values_R
        values_R = np.where(np.isnan(batch.rewards_R), np.nan, values_R)
        evidence_R = history.mass if posterior else 0.0
        return branch_advantages(branch_RT, weight_R, batch.group_R, values_R, evidence_R)

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
        weight_R = torch.tensor([leaf.weight for leaf in self._leaves])
        return {"branch_ids": branch_RT, "branch_weights": weight_R}

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """The rollouts, as TRL asks for them. Those of an evaluation do not branch."""
        training, ids = trainer.model.training, self._ids
        self._ids = None
        if training and ids is None:
            raise UnsupportedError(
                f"{type(self).__name__} computes advantages by branch, which needs an "
                "AdaptiveGRPOCallback on the trainer: trainer.add_callback(AdaptiveGRPOCallback("
                "trainer, budgetalloc.uniform())), or with another policy."
            )
        tokens_R = tokens_of(trainer, prompts)
        names = ids if training and ids is not None else range(len(prompts))
        rows_P: dict[Any, list[int]] = {}
        for row, (name, text) in enumerate(zip(names, tokens_R, strict=True)):
            rows_P.setdefault((name, tuple(text)), []).append(row)
        counts_P = [len(rows) for rows in rows_P.values()]
        roots_P = [self.roots_of(count, trainer.state.global_step) for count in counts_P]
        texts_P = [list(text) for _, text in rows_P]
        leaves_P, tokens = self.grown(trainer, texts_P, counts_P, roots_P)
        at_R, leaves = itertools.chain(*rows_P.values()), itertools.chain(*leaves_P)
        placed = dict(zip(at_R, leaves, strict=True))
        leaves_R = [placed[row] for row in range(len(prompts))]
        if training:
            self._leaves = leaves_R
            share, roots = tokens / sum(len(leaf.tokens) for leaf in leaves_R), sum(roots_P)
            logged = {"tokens": tokens, "share": share, "roots": roots / len(leaves_R)}
            for name, value in logged.items():
                trainer._metrics["train"][f"budgetalloc/trees/{name}"].append(value)
        own_R = [leaf.own_T for leaf in leaves_R]
        return {
            "prompt_ids": tokens_R,
            "completion_ids": [leaf.tokens for leaf in leaves_R],
            "logprobs": [leaf.logps for leaf in leaves_R] if trainer.use_vllm else None,
            "generated_tokens": _shares(leaves_R),
            **({"env_mask": own_R} if any(own_R) else {}),
        }

    def grown(
        self, trainer: Any, prompts_P: list[list[int]], counts_P: list[int], roots_P: list[int]
    ) -> tuple[list[list[Leaf]], int]:
        """So many leaves of each prompt, on so many roots, and the number of tokens generated."""
        step, longest = trainer.state.global_step, trainer.max_completion_length
        rng, of_end = np.random.default_rng([self.seed, step]), ends(trainer)
        return grow(
            lambda rows, more: extended(trainer, rows, np.full(len(rows), more)),
            prompts_P,
            counts_P,
            roots_P,
            range(self.points[0], longest, self.points[0]) if self.every else self.points,
            longest,
            ends=lambda tokens: tokens[-1] in of_end,
            choose=lambda number, most: rng.permutation(number)[:most].tolist(),
            waves=self._waves,
        )


def increasing_lengths(name: str, value: int | Sequence[int]) -> list[int]:
    """These lengths in tokens, of which each is larger than the one before; else raises."""
    lengths = [value] if isinstance(value, int) else value
    checked = [check_integer(name, each, 1) for each in lengths]
    if not checked or checked != sorted(set(checked)):
        what = "give increasing lengths in tokens, such as [64, 128], or one number."
        raise InputError(name, what, value)
    return checked


def _shares(leaves: Sequence[Leaf]) -> list[float]:
    """Each rollout's tokens that the model wrote, of which shared ones are divided evenly. They add
    up to the tokens generated.

    >>> _shares([Leaf(0, 1, 1.0, branch_T=[0, 0, 1]), Leaf(0, 2, 1.0, branch_T=[0, 0, 2, 2])])
    [2.0, 3.0]
    """
    rows = Counter(branch for leaf in leaves for branch in set(leaf.branch_T))
    own_R = [leaf.own_T or [1] * len(leaf.branch_T) for leaf in leaves]
    return [
        sum(own / rows[branch] for own, branch in zip(own_T, leaf.branch_T, strict=True))
        for own_T, leaf in zip(own_R, leaves, strict=True)
    ]

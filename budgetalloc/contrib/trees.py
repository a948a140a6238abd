"""Rollouts that branch: the `rollout_func` for TRL's `GRPOTrainer`, and the published rules for how
many and which."""

import copy
import inspect
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from trl.models import unwrap_model_for_generation
from trl.trainer.utils import pad

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.contrib.tree_growth import Active, Leaf, grow, tree_advantages
from budgetalloc.errors import (
    InputError,
    UnsupportedError,
    check_choice,
    check_integer,
    check_number,
    check_seed,
)
from budgetalloc.policies import Policy
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.options import Options
from budgetalloc.trl.patching import patched_attribute

__all__ = [
    "LATR_COUNTDOWN",
    "LATR_MATH",
    "Trees",
    "aepo_branch_probability",
    "aepo_split",
    "latr_split",
    "refusals",
]

# schedules of LATR's released scripts: the first step of each phase, and its share of tree rollouts
LATR_COUNTDOWN = {0: 1.0, 10: 0.75, 20: 0.5, 80: 0.25, 200: 0.0}
LATR_MATH = {0: 1.0, 100: 0.75, 200: 0.5, 300: 0.25}
# vLLM's default limit; the rest of a distribution counts as one more token in its entropy
_TOP = 20


class Trees:
    """Rollouts that branch, as the `rollout_func` of TRL's `GRPOTrainer`. Their tokens get
    advantages by branch.

    Add an `AdaptiveGRPOCallback` too, with any policy; under `uniform()` every prompt has
    `num_generations` rollouts. The policy decides how many rollouts a prompt gets. `roots` of them
    begin at the prompt. The others are branches: where a rollout has one of the lengths `points`,
    it may become two, which share their tokens so far. Each of them is a row of the trainer's
    batch. Tokens are sampled as in plain GRPO, a branch is chosen by what precedes it, and the
    advantages are those of `tree_growth.branch_advantages`, so the expected gradient is that of the
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
            `LATR_MATH`: all but the tree's share (LATR), and one. In any case at least two, or the
            only rollout.
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
        self.every = isinstance(points, int)
        each = [points] if isinstance(points, int) else points
        self.points = [check_integer("points", point, 1) for point in each]
        if not self.points or self.points != sorted(set(self.points)):
            raise InputError(
                "points",
                "give increasing lengths in tokens, such as [64, 128], or one number.",
                points,
            )
        if isinstance(roots, Mapping):
            for at, share in roots.items():
                check_integer("roots", at, 0)
                check_number("roots", share, 0, 1)
            if 0 not in roots:
                raise InputError(
                    f"roots={dict(roots)!r} has no share for step 0: add {{0: 1.0}}.",
                    argument="roots",
                )
        elif roots != "aepo":
            check_number("roots", roots, 0, 1, without=(0,))
        check_choice("branch", branch, ("even", "entropy"))
        self.roots, self.branch, self.seed = roots, branch, check_seed(seed)
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

    def refusals(
        self, trainer: Any, policy: Policy, options: Options
    ) -> Iterator[UnsupportedError]:
        """Why its rollouts would be trained on wrongly there (`refusals`)."""
        return refusals(trainer, policy, options)

    def advantages(
        self, batch: Rollouts, options: Options, branch_RT: IntArray, weight_R: FloatArray
    ) -> FloatArray:
        """The advantage of each token (`tree_growth.tree_advantages`)."""
        return tree_advantages(batch, options, branch_RT, weight_R)

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
                "Trees computes advantages by branch, which needs an AdaptiveGRPOCallback on the "
                "trainer: trainer.add_callback(AdaptiveGRPOCallback(trainer, "
                "budgetalloc.uniform())), or with another policy."
            )
        tokens_R = trainer._tokenize_prompts(prompts)[0]
        names = ids if training and ids is not None else range(len(prompts))
        rows_P: dict[Any, list[int]] = {}
        for row, (name, text) in enumerate(zip(names, tokens_R, strict=True)):
            rows_P.setdefault((name, tuple(text)), []).append(row)
        step, longest = trainer.state.global_step, trainer.max_completion_length
        counts_P = [len(rows) for rows in rows_P.values()]
        roots_P = [self.roots_of(count, step) for count in counts_P]
        rng, ends = np.random.default_rng([self.seed, step]), set(trainer.eos_token_ids)
        entropies = self.branch == "entropy" or self.roots == "aepo"
        engine = _VLLM if trainer.use_vllm else _Transformers
        leaves_P, tokens = grow(
            engine(trainer, entropies),
            [list(text) for _, text in rows_P],
            counts_P,
            roots_P,
            range(self.points[0], longest, self.points[0]) if self.every else self.points,
            longest,
            ends=lambda tokens: tokens[-1] in ends,
            choose=lambda leaves, most: self._choose(leaves, most, rng),
            waves=self._waves,
        )
        placed = dict(
            zip(itertools.chain(*rows_P.values()), itertools.chain(*leaves_P), strict=True)
        )
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
        first = [leaf.entropies[0] for leaf in leaves]
        later = [entropy for leaf in leaves for entropy in leaf.entropies[1:]]
        if entropies and later:
            self._entropies = float(np.mean(first)), float(np.mean(later))


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


def aepo_split(k: int, entropy_root: float, entropy_tool: float) -> tuple[int, int]:
    """Rollouts from scratch and branches: m = k sigmoid(H_root - H_tool), at least 1, and k - m
    (AEPO, arXiv 2510.14545). The entropies are means at the question, and after tool calls.

    We did not find the paper's factor of the difference; 1 is a guess.

    >>> aepo_split(16, 1.0, 1.0), aepo_split(16, 2.0, 0.5), aepo_split(16, 0.0, 9.0)
    ((8, 8), (13, 3), (1, 15))
    """
    sigmoid = (1 + math.tanh((entropy_root - entropy_tool) / 2)) / 2  # without overflow
    scratch = max(1, math.floor(k * sigmoid + 0.5))
    return scratch, k - scratch


def aepo_branch_probability(entropy_change: ArrayLike, consecutive: ArrayLike) -> FloatArray:
    """Probability of a branch at a tool step, (1/2 + dH/5) (1 - l/4) (AEPO, arXiv 2510.14545), with
    the change of the entropy dH and l branches in a row.

    Each factor is clipped to [0, 1]. We did not find the paper's penalty; 1/4 is a guess. 1/2 and
    1/5 are those of the predecessor's code (ARPO).

    >>> aepo_branch_probability([0.5, 0.5, 0.5, -1.0], [0, 1, 4, 0])
    array([0.6 , 0.45, 0.  , 0.3 ])
    """
    by_entropy = np.clip(0.5 + 0.2 * np.asarray(entropy_change, dtype=np.float64), 0, 1)
    return np.asarray(by_entropy * np.clip(1 - 0.25 * np.asarray(consecutive), 0, 1))


def latr_split(rollouts: int, step: int, schedule: Mapping[int, float]) -> tuple[int, int]:
    """Tree rollouts and independent samples of `rollouts` at a step (LATR, arXiv 2510.24302); the
    tree's share is rounded to the nearest.

    >>> [latr_split(8, step, LATR_COUNTDOWN) for step in (0, 10, 80, 200)]
    [(8, 0), (6, 2), (2, 6), (0, 8)]
    """
    tree = math.floor(rollouts * schedule[max(at for at in schedule if at <= step)] + 0.5)
    return tree, rollouts - tree


class _Transformers:
    """`generate` with one cache for all rows, which have equally many tokens: `select` leaves out
    rows that ended. A branch gets a copy of its parent's cache, so no prefix is recomputed."""

    def __init__(self, trainer: Any, entropies: bool) -> None:
        self.trainer, self.entropies = trainer, entropies
        self.cache: Any = None

    def start(self, prompts: list[list[int]]) -> None:
        device, pad_id = self.trainer.accelerator.device, self.trainer._tokenizer.pad_token_id
        rows = [torch.tensor(ids, device=device) for ids in prompts]
        self.cache = None
        self.ids = pad(rows, pad_id, "left")
        self.mask = pad([torch.ones_like(row) for row in rows], 0, "left")

    def extend(self, tokens: int) -> list[Active]:
        trainer, entropies_TR = self.trainer, []

        def record(_: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            logps = scores.float().log_softmax(dim=-1)
            entropies_TR.append(-(logps.exp() * logps).nan_to_num(0.0).sum(dim=-1))
            return scores

        config = copy.deepcopy(trainer.generation_config)
        config.update(max_new_tokens=tokens, return_dict_in_generate=True)
        given = {
            "gather_deepspeed3_params": trainer.args.ds3_gather_for_generation,
            "generation_kwargs": trainer.generation_kwargs,
            "gradient_checkpointing_kwargs": trainer.args.gradient_checkpointing_kwargs,  # TRL 1.16
        }
        known = inspect.signature(unwrap_model_for_generation).parameters
        given = {name: value for name, value in given.items() if name in known}
        unwrapped = unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator, **given)
        with unwrapped as model, torch.no_grad():
            output = model.generate(
                input_ids=self.ids,
                attention_mask=self.mask,
                past_key_values=self.cache,
                generation_config=config,
                logits_processor=[record] if self.entropies else None,
            )
        made, self.cache = output.sequences[:, self.ids.size(1) :], output.past_key_values
        self.ids = output.sequences
        self.mask = torch.cat([self.mask, self.mask.new_ones(made.shape)], dim=1)
        is_end = torch.isin(made, torch.tensor(trainer.eos_token_ids, device=made.device))
        lengths = [row.index(True) + 1 if any(row) else len(row) for row in is_end.tolist()]
        entropies_R = [[math.nan]] * len(lengths)
        if self.entropies:
            entropies_R = torch.stack(entropies_TR, dim=1).tolist()
        return [
            Active(row[:length], [], sum(each[:length]) / len(each[:length]))
            for row, length, each in zip(made.tolist(), lengths, entropies_R, strict=True)
        ]

    def select(self, rows: list[int]) -> None:
        index = torch.tensor(rows, device=self.ids.device)
        self.ids, self.mask = self.ids[index], self.mask[index]
        self.cache.batch_select_indices(index)


class _VLLM:
    """TRL's vLLM, in the process or behind its server. Its prefix cache saves computing a shared
    prefix again."""

    def __init__(self, trainer: Any, entropies: bool) -> None:
        self.vllm = trainer.vllm_generation
        self.top = min(_TOP, len(trainer._tokenizer)) if entropies else 0

    def start(self, prompts: list[list[int]]) -> None:
        self.ids = prompts

    def extend(self, tokens: int) -> list[Active]:
        block = patched_attribute(self.vllm, "max_completion_length", tokens)
        with block, patched_attribute(self.vllm, "logprobs", self.top):
            _, made_R, logps_R, top_R = self.vllm.generate(
                prompts=self.ids, images=None, num_generations=1
            )
        self.ids = [[*ids, *made] for ids, made in zip(self.ids, made_R, strict=True)]
        rows = []
        for made, logps_T, top_T in zip(made_R, logps_R, top_R, strict=True):
            each_T = zip(made, logps_T, top_T, strict=True)
            logps = [of_top[top.index(token)] for token, of_top, top in each_T]
            entropy = sum(map(_entropy, logps_T)) / len(made) if self.top else math.nan
            rows.append(Active(list(made), logps, entropy))
        return rows

    def select(self, rows: list[int]) -> None:
        self.ids = [self.ids[row] for row in rows]


def _entropy(logps: list[float | None]) -> float:
    """The entropy in nats of a distribution whose largest log-probabilities are known.

    >>> round(_entropy([math.log(0.5), math.log(0.25)]), 3)
    1.04
    """
    shares = [math.exp(each) for each in logps if each is not None]
    return -sum(p * math.log(p) for p in [*shares, max(0.0, 1 - sum(shares))] if p > 0)


def refusals(trainer: Any, policy: Policy, options: Options) -> Iterator[UnsupportedError]:
    """The reasons why the branches of a trainer's rollouts would get wrong advantages."""
    baseline, truncated = options.baseline, trainer.mask_truncated_completions
    acts = getattr(trainer, "tools", None) or getattr(trainer, "environment_factories", None)
    batched = getattr(trainer, "use_transformers_continuous_batching", False)
    refused = {
        "several processes, which each hold a part of a tree": trainer.accelerator.num_processes
        > 1,
        "tools and environments": acts,
        "use_transformers_continuous_batching=True": batched,
        "mask_truncated_completions=True, which masks shared tokens too": truncated,
        f"{policy}, which trains on some leaves of a tree only": policy.keep
        and options.generate > 1,
        "buffer=, which replaces leaves": options.buffer is not None,
        f"baseline={baseline!r}: use 'group', 'loo' or 'posterior'": baseline
        in ("batch", "policy"),
    }
    for what, applies in refused.items():
        if applies:
            yield UnsupportedError(f"rollout_func=Trees(...) does not work with {what}.")

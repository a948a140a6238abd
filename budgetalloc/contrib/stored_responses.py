"""Stored responses of earlier steps, which are trained on again in place of rows without signal.

A response of an earlier step is off-policy. To train on it, a trainer needs the log-probabilities
of its tokens *when it was generated* for the clipped importance ratio. The buffers choose rows;
`Reuse` puts them into TRL's batches.
"""

import math
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from trl.trainer.utils import pad

from budgetalloc.beliefs.ids import Id, stable_key
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import (
    StateError,
    UnsupportedError,
    check_integer,
    check_number,
)
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.trl.batch_merge import merge_rounds, select_rows

__all__ = [
    "BUFFER_FILE",
    "Buffer",
    "CorrectResponseBuffer",
    "Reuse",
    "SelectiveSampleBuffer",
    "Stored",
    "Substitution",
    "refusals",
]

BUFFER_FILE = "budgetalloc_buffer.pt"
_SMALLEST = 1e-8  # smaller advantages are 0 up to rounding

# Per-token entries of TRL's batches, which are stored with a completion if present.
_OLD = "old_per_token_logps"
_PER_TOKEN = (_OLD, "ref_per_token_logps", "sampling_per_token_logps")
_PARTS = ("prompt", "completion")
_ROWS = {"advantages", "num_items_in_batch"}
_ROWS |= {f"{part}_{kind}" for part in _PARTS for kind in ("ids", "mask")}


class Stored(NamedTuple):
    """One response, and what a trainer needs to train on it again.

    `response` has a tensor with one axis by name: token ids, their log-probabilities under the
    policy that generated them, and others. Numbers are NaN where there is none.
    """

    id: Id
    response: Mapping[str, torch.Tensor]
    reward: float
    advantage: float
    success: float
    step: int


class Buffer:
    """Stored responses, the oldest first, limited in number and in age.

    Responses older than `max_age` are evicted first, then the oldest of each prompt with more than
    `per_prompt`, then the oldest of all until `capacity` are left. A response of step s is kept up
    to step s + `max_age`. Among responses of one step, the first added is the oldest.
    """

    def __init__(self, capacity: int, max_age: int, per_prompt: int | None, seed: int) -> None:
        self.capacity = check_integer("capacity", capacity, 1)
        self.max_age = check_integer("max_age", max_age, 1)
        self.per_prompt = None if per_prompt is None else check_integer("per_prompt", per_prompt, 1)
        self.seed = check_integer("seed", seed, 0)
        self.samples: list[Stored] = []
        """The responses, the oldest first. Every change makes a new list."""
        self.step = 0
        self._draws = 0

    def reuse(self, trainer: Any) -> "Reuse":
        """What reuses this buffer's responses in a `GRPOTrainer`."""
        return Reuse(trainer, self)

    def refusals(self, trainer: Any) -> Iterator[UnsupportedError]:
        """Why its responses would be reused wrongly there (`refusals`)."""
        return refusals(trainer)

    def __len__(self) -> int:
        """Number of responses kept."""
        return len(self.samples)

    def fits(self, sample: Stored) -> bool:
        """Whether this kind of buffer stores the sample."""
        raise NotImplementedError

    def advance(self, step: int) -> None:
        """Sets the current step, which must not decrease, and evicts what has become too old."""
        self.step = check_integer("step", step, self.step)
        self._evict()

    def add(self, samples: Iterable[Stored]) -> None:
        """Stores those of these samples that fit, and evicts those over the limits."""
        new = [sample for sample in samples if self.fits(sample)]
        self.samples = sorted([*self.samples, *new], key=lambda sample: sample.step)
        self.step = max([self.step, *(sample.step for sample in new)])
        self._evict()

    def _evict(self) -> None:
        kept, newer = [], Counter[Id]()
        for sample in reversed(self.samples):  # the newest first
            newer[sample.id] += 1
            allowed = self.per_prompt is None or newer[sample.id] <= self.per_prompt
            if allowed and self.step - sample.step <= self.max_age:
                kept.append(sample)
        self.samples = kept[: self.capacity][::-1]

    def _next_rng(self) -> np.random.Generator:
        """The generator of the next draw, from the seed and the number of earlier draws."""
        self._draws += 1
        return np.random.default_rng([self.seed, self._draws - 1])

    def state_dict(self) -> dict[str, Any]:
        """All responses, the seed and the number of draws, without the settings."""
        samples = [tuple(sample) for sample in self.samples]
        state = {"seed": self.seed, "draws": self._draws, "step": self.step, "samples": samples}
        return state | {"kind": type(self).__name__}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores `state_dict()` to the bit; samples above the current limits are evicted. Raises
        `StateError`, and changes nothing, for a state of another kind or seed."""
        kind = type(self).__name__
        if (state["kind"], state["seed"]) != (kind, self.seed):
            raise StateError(
                f"The buffer's state was saved by a {state['kind']} with seed={state['seed']}, and "
                f"this is a {kind} with seed={self.seed}: draws would differ. Pass the same buffer."
            )
        self.samples = [Stored(*sample) for sample in state["samples"]]
        self.step, self._draws = state["step"], state["draws"]
        self._evict()


class Substitution(NamedTuple):
    """A batch in which stored correct responses stand for wrong ones."""

    rows: IntArray  # whose response is replaced, ascending, shape (S,)
    stored: list[Stored]  # the replacements, one for each of `rows`
    rewards_R: FloatArray  # of the batch after that


class CorrectResponseBuffer(Buffer):
    """Keeps correct responses of each prompt; if all of a prompt's responses fail, a stored one
    replaces a wrong one.

    AR3PO (arXiv 2509.25808) stores every new correct response, and draws uniformly among those of
    the prompt. The paper does not say how many it keeps or for how long, and no code was released:
    `capacity`, `per_prompt`, `max_age` and a uniform draw of the response to replace are this
    package's choice. A group with fewer than two rewards is unchanged, because its advantages would
    stay 0.

    Advantages come from the rewards after the substitution. The replaced rows are left out of the
    loss, but not out of the mean and deviation of their group: the paper's option II, which it
    reports as the best, and which is not biased as its option I is.

    Args:
        capacity: Most responses kept.
        per_prompt: Most responses of one prompt.
        max_age: In steps; older ones are evicted and never drawn.
        threshold: A response is correct if its success is above this.
        seed: Seeds the draws.

    >>> buffer = CorrectResponseBuffer(seed=0)
    >>> buffer.add([Stored("a", {"tokens": torch.tensor([5, 7])}, 1.0, 0.5, 1.0, step=0)])
    >>> done = buffer.substitute(["a", "a", "b", "b"], np.zeros(4), np.zeros(4), step=1)
    >>> done.rows, done.rewards_R, done.stored[0].response["tokens"]  # nothing is stored of b
    (array([0]), array([1., 0., 0., 0.]), tensor([5, 7]))
    """

    def __init__(
        self,
        *,
        capacity: int = 8192,
        per_prompt: int = 4,
        max_age: int = 256,
        threshold: float = 0.5,
        seed: int = 0,
    ) -> None:
        super().__init__(capacity, max_age, per_prompt, seed)
        self.threshold = check_number("threshold", threshold, -np.inf, np.inf)

    def fits(self, sample: Stored) -> bool:
        """Whether it is correct and has a reward."""
        return sample.success > self.threshold and math.isfinite(sample.reward)

    def substitute(
        self, ids_R: Sequence[Id], rewards_R: FloatArray, success_R: FloatArray, step: int
    ) -> Substitution:
        """Replaces a wrong response by a stored correct one for each prompt without any success.

        The rollouts are those of the whole step, with all its rounds. A reward or success of NaN is
        none, and is never replaced. `step` must not decrease.
        """
        self.advance(step)
        kept: dict[Id, list[Stored]] = {}
        for sample in self.samples:
            kept.setdefault(sample.id, []).append(sample)
        rows_of: dict[Id, list[int]] = {}
        for row in np.flatnonzero(~np.isnan(rewards_R) & ~np.isnan(success_R)).tolist():
            rows_of.setdefault(ids_R[row], []).append(row)
        failed = [
            name
            for name, rows in rows_of.items()
            if name in kept and len(rows) >= 2 and success_R[rows].max() <= self.threshold
        ]
        failed.sort(key=stable_key)  # draws do not depend on the order of prompts in the batch
        draws = self._next_rng().random((len(failed), 2))
        chosen: dict[int, Stored] = {}
        for name, (which, wrong) in zip(failed, draws.tolist(), strict=True):
            row = rows_of[name][int(wrong * len(rows_of[name]))]
            chosen[row] = kept[name][int(which * len(kept[name]))]
        rows = sorted(chosen)
        after_R = rewards_R.copy()
        after_R[rows] = [chosen[row].reward for row in rows]
        return Substitution(np.array(rows, dtype=np.int64), [chosen[row] for row in rows], after_R)


class SelectiveSampleBuffer(Buffer):
    """Keeps samples with a non-zero advantage and draws them again, P(j) proportional to
    |A_j|^power.

    Skywork R1V2 (arXiv 2504.16656) stores such samples and re-introduces them in later updates,
    weighted by |A|. The report gives neither the exponent, the size, the ratio of old to new nor a
    limit on age, and no code was released. The defaults, the eviction of the oldest, and drawing
    without replacement are this package's choice. A stored sample replaces each row without signal,
    with the advantage from its own group and an importance ratio, and stays in the buffer.

    Args:
        capacity: Most samples kept.
        max_age: In steps; older samples are evicted and never drawn.
        power: The exponent, at least 0. With 0 all samples are equally probable.
        seed: Seeds the draws.

    >>> buffer = SelectiveSampleBuffer(seed=0)
    >>> buffer.add([Stored("a", {"tokens": torch.tensor([5, 7])}, 1.0, 0.5, 1.0, step=0)])
    >>> fresh, stored = buffer.refill(np.array([0.7, 0, 0]), step=1)  # one fresh row has signal
    >>> fresh, [sample.id for sample in stored]
    (array([0, 1]), ['a'])
    """

    def __init__(
        self, *, capacity: int = 1024, max_age: int = 8, power: float = 1.0, seed: int = 0
    ) -> None:
        super().__init__(capacity, max_age, None, seed)
        self.power = check_number("power", power, 0, math.inf)

    def fits(self, sample: Stored) -> bool:
        """Whether it has signal and a reward."""
        return abs(sample.advantage) > _SMALLEST and math.isfinite(sample.reward)

    def draw(self, count: int, step: int) -> list[Stored]:
        """Draws samples of earlier steps without replacement, P(j) proportional to |A_j|^power of
        those left; all if fewer are kept. `step` must not decrease."""
        self.advance(step)
        earlier = [sample for sample in self.samples if sample.step < step]
        # Sorting by log-weight + Gumbel noise draws without replacement; logarithms cannot
        # underflow.
        weights = self.power * np.log(np.abs([sample.advantage for sample in earlier]))
        order = np.argsort(-(weights + self._next_rng().gumbel(size=len(earlier))), kind="stable")
        return [earlier[at] for at in order[:count].tolist()]

    def refill(self, advantages_R: FloatArray, step: int) -> tuple[IntArray, list[Stored]]:
        """Which fresh rows to train on, ascending, and the stored samples that fill the batch up to
        its size.

        If too few are stored, rows without signal stay: `len(fresh) + len(stored)` is always the
        batch's size. NaN is no signal. `step` must not decrease.
        """
        signal_R = np.abs(advantages_R) > _SMALLEST  # NaN compares False
        stored = self.draw(int((~signal_R).sum()), step)
        without = np.flatnonzero(~signal_R)[: len(signal_R) - signal_R.sum() - len(stored)]
        return np.sort(np.concatenate([np.flatnonzero(signal_R), without])), stored


class Reuse:
    """Puts a buffer's responses into the batches that TRL trains on, and new responses into the
    buffer.

    TRL omits old log-probabilities, and uses a ratio of 1, if it trains on a batch before the model
    changes. A stored sample has another ratio, so with `SelectiveSampleBuffer` TRL's own function
    computes them for every batch, in one more forward pass per step. `CorrectResponseBuffer` needs
    none, because its rows are masked, and keeps no tokens.

    The buffer's steps are those of `trainer.state.global_step`.
    """

    def __init__(self, trainer: Any, buffer: Buffer) -> None:
        self.trainer, self.buffer = trainer, buffer

    def substitute(self, output: dict[str, Any], batch: Rollouts) -> Substitution | None:
        """AR3PO: the wrong rows that get a stored correct response; stores the new correct ones."""
        for name in output:
            if name not in _ROWS and name not in _PER_TOKEN:
                raise UnsupportedError(
                    f"buffer= cannot keep {name!r} of TRL's batch with a stored response. Train "
                    "without a buffer, or without tools, environments and images."
                )
        if not isinstance(self.buffer, CorrectResponseBuffer):
            return None
        swap = self.buffer.substitute(batch.ids_R, batch.rewards_R, batch.success_R, batch.step)
        rows = np.flatnonzero(_in_loss(output)).tolist()
        self.buffer.add(_stored(batch, at, {}, 0.0) for at in rows)
        self._log(len(swap.rows))
        return swap

    def put_back(self, output: dict[str, Any], swap: Substitution) -> dict[str, Any]:
        """TRL's batch without the wrong responses that were replaced. They count in the advantages
        of the others only."""
        mask = output["completion_mask"].clone()
        mask[torch.as_tensor(swap.rows, device=mask.device)] = 0
        return {**output, "completion_mask": mask, "num_items_in_batch": mask.sum()}

    def refill(self, output: dict[str, Any], batch: Rollouts, kept_R: IntArray) -> dict[str, Any]:
        """Skywork R1V2: TRL's batch with stored samples in place of rows without signal; stores the
        rows with signal. `kept_R` are the rollouts of `batch` that are its rows."""
        if not isinstance(self.buffer, SelectiveSampleBuffer):
            return output
        advantages_R = np.where(_in_loss(output), output["advantages"].cpu().double().numpy(), 0.0)
        fresh, stored = self.buffer.refill(advantages_R, batch.step)
        given, pad_id = _OLD in output, self.trainer._tokenizer.pad_token_id
        if stored:
            drawn = self._batch(stored, np.array([x.advantage for x in stored]), output)
            output = merge_rounds([select_rows(output, fresh), drawn], pad_id)
        if not given:  # as wide as in the loss, so that fresh rows have a ratio of 1
            output = {**output, _OLD: self._log_probabilities(output)}
            for row, old in zip(
                output[_OLD][len(fresh) :], _columns(stored, _OLD, output[_OLD]), strict=True
            ):
                row[: len(old)] = old
        self._add(output, batch, kept_R[fresh], advantages_R[fresh])
        self._log(len(stored))
        return output

    def _add(
        self, output: dict[str, Any], batch: Rollouts, rollouts: IntArray, advantages_R: FloatArray
    ) -> None:
        """Stores these rollouts of the batch, which are the first rows of TRL's batch. A response
        that TRL masks has no tokens to store."""
        masks = {part: output[f"{part}_mask"].bool().cpu() for part in _PARTS}
        arrays = {f"{part}_ids": (output[f"{part}_ids"].int().cpu(), part) for part in _PARTS}
        arrays |= {
            name: (output[name].float().cpu(), _PARTS[1]) for name in _PER_TOKEN if name in output
        }
        self.buffer.add(
            _stored(
                batch,
                at,
                {name: value[row][masks[part][row]] for name, (value, part) in arrays.items()},
                float(advantages_R[row]),
            )
            for row, at in enumerate(rollouts.tolist())
            if masks["completion"][row].any()
        )

    def _batch(
        self, stored: list[Stored], advantages_S: FloatArray, like: dict[str, Any]
    ) -> dict[str, Any]:
        """Stored responses as TRL's batch would hold them, with the columns, types and device of
        `like`."""
        multiple, pad_id = self.trainer.pad_to_multiple_of, self.trainer._tokenizer.pad_token_id
        batch: dict[str, Any] = {"advantages": torch.as_tensor(advantages_S).to(like["advantages"])}
        for part, side in (("prompt", "left"), ("completion", "right")):
            tokens = _columns(stored, f"{part}_ids", like[f"{part}_ids"])
            masks = [torch.ones_like(x, dtype=like[f"{part}_mask"].dtype) for x in tokens]
            batch[f"{part}_ids"] = pad(tokens, pad_id, side, multiple)
            batch[f"{part}_mask"] = pad(masks, 0, side, multiple)
        for name in _PER_TOKEN:
            if name in like:
                batch[name] = pad(_columns(stored, name, like[name]), 0.0, "right", multiple)
        batch["num_items_in_batch"] = batch["completion_mask"].sum()
        return batch

    def _log_probabilities(self, batch: dict[str, Any]) -> torch.Tensor:
        """The log-probability of each completion token under the current model."""
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        trainer, width = self.trainer, batch["completion_ids"].size(1)
        portion = trainer.args.per_device_train_batch_size
        with torch.no_grad():
            answer = trainer._get_per_token_logps_and_entropies(
                trainer.model, ids, mask, width, batch_size=portion
            )
        return answer[0]

    def _log(self, reused: int) -> None:
        self.trainer._metrics["train"]["budgetalloc/reused"].append(float(reused))

    def check_clock(self, step: int) -> None:
        """Raises `StateError` if the buffer has seen later steps than the first step of this
        training."""
        if self.buffer.step > step:
            raise StateError(
                f"buffer= was used until step {self.buffer.step}, and training begins at step "
                f"{step}, so the age of the stored responses is not known. Pass a new buffer for a "
                "new training, or resume from a checkpoint."
            )

    def save(self, folder: Path) -> None:
        """Writes the buffer's state into a checkpoint."""
        torch.save(self.buffer.state_dict(), folder / BUFFER_FILE)

    def load(self, folder: Path) -> bool:
        """Loads the buffer's state; False if the checkpoint has none."""
        path = folder / BUFFER_FILE
        if not path.exists():
            return False
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise StateError(
                f"{path} is damaged ({error}). Delete it: the buffer then starts empty."
            ) from error
        self.buffer.load_state_dict(state)
        return True


def _stored(
    batch: Rollouts, at: int, response: Mapping[str, torch.Tensor], advantage: float
) -> Stored:
    """A rollout of a batch, to be stored."""
    reward, success = float(batch.rewards_R[at]), float(batch.success_R[at])
    return Stored(batch.ids_R[at], response, reward, advantage, success, batch.step)


def _in_loss(output: dict[str, Any]) -> NDArray[np.bool_]:
    """Which rows have a token in the loss; GRPOConfig(mask_truncated_completions=True) masks the
    others."""
    return np.asarray(output["completion_mask"].any(dim=1).cpu().numpy())


def _columns(stored: Sequence[Stored], name: str, like: torch.Tensor) -> list[torch.Tensor]:
    """The tensors of this name, with the type and device of `like`."""
    for sample in stored:
        if name not in sample.response:
            raise StateError(
                f"buffer= holds a response without {name!r} (it has {sorted(sample.response)}), "
                "stored under other settings of the trainer. Pass a new buffer."
            )
    return [sample.response[name].to(like) for sample in stored]


def refusals(trainer: Any) -> Iterator[UnsupportedError]:
    """The settings with which `buffer=` cannot store or reuse responses correctly."""
    args, processes = trainer.args, trainer.accelerator.num_processes
    columns = set(getattr(trainer.train_dataset, "column_names", None) or ())
    acts = getattr(trainer, "tools", None) or getattr(trainer, "environment_factories", None)
    corrects = trainer.use_vllm and trainer.vllm_importance_sampling_correction
    sums = trainer.multi_objective_aggregation == "sum_then_normalize"
    refused = {
        f"{processes} processes, of which one has the buffer": processes > 1,
        "tools or environments, whose tokens are not the model's": acts,
        "images, which are not stored": {"image", "images"} & columns,
        "vllm_importance_sampling_correction=True, whose ratio is not stored": corrects,
        "sync_ref_model=True, which replaces the reference model of stored responses": args.beta
        and args.sync_ref_model,
        f"multi_objective_aggregation={trainer.multi_objective_aggregation!r}": not sums,
    }
    for what, applies in refused.items():
        if applies:
            yield UnsupportedError(
                f"buffer= does not work with {what}: leave that out, or attach the policy without "
                "a buffer."
            )

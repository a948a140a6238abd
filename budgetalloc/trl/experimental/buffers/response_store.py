"""A stored response, and a store of them that is bounded in number and in age.

A response of an earlier step is off-policy. To train on it, a trainer needs the log-probabilities
of its tokens *when it was generated* (keep them in `response`) for the clipped importance ratio,
and a mask that leaves a row out of the loss but not out of its group's statistics. The buffers hold
arrays and choose rows. The trainer computes the ratio and applies the clipping and the mask.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from budgetalloc.beliefs.ids import Id, check_ids
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, StateError, check_integer, check_number

__all__ = ["Array", "Store", "Stored", "stored_rows"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Stored:
    """One response of an earlier step, and what a trainer needs to train on it again.

    Args:
        id: Its prompt, an int or a str.
        response: Arrays of numbers by name: token ids, their log-probabilities under the policy
            that generated them, and others that the trainer needs. They are copied and made
            read-only.
        reward: Finite.
        advantage: In its own group, finite; 0 if the buffer does not use it.
        step: When it was generated, at least 0.
        success: Its success; NaN if the buffer does not use it.

    >>> Stored("a", {"tokens": [5, 7], "logprobs": [-0.5, -1.0]}, reward=1, advantage=0.5, step=3).response["tokens"]
    array([5, 7])
    """

    id: Id
    response: Mapping[str, Any]
    reward: float
    advantage: float
    step: int
    success: float = math.nan

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", check_ids([self.id], "id")[0])
        if not isinstance(self.response, Mapping):
            raise InputError(
                f"response={self.response!r}: give arrays by name, such as {{'tokens': [5, 7]}}."
            )
        object.__setattr__(
            self, "response", {str(name): _frozen(name, x) for name, x in self.response.items()}
        )
        for name in ("reward", "advantage"):
            object.__setattr__(
                self, name, check_number(name, getattr(self, name), -math.inf, math.inf)
            )
        object.__setattr__(self, "step", check_integer("step", self.step, 0))


class Store:
    """Stored responses, the oldest first, limited in number and in age: the base class of the
    buffers.

    Responses older than `max_age` are evicted first, then the oldest of each prompt with more than
    `per_prompt`, then the oldest of all until `capacity` are left. Age counts from the step of
    generation. Among responses of one step, the first added is the oldest.

    Args:
        kind: The kind of buffer. A saved state fits only the same kind.
        capacity: Most responses, at least 1.
        max_age: In steps, at least 1. A response of step s is kept up to step s + `max_age`.
        per_prompt: Most responses of one prompt; `None` is no limit.
        seed: Seeds the draws.

    >>> store = Store("doc", capacity=2, max_age=10)
    >>> store.put([Stored("a", {}, 1, 0, step) for step in (3, 4, 5)])
    >>> [kept.step for kept in store.samples], len(store), store.step
    ([4, 5], 2, 5)
    >>> store.advance(15); [kept.step for kept in store.samples]
    [5]
    """

    def __init__(
        self,
        kind: str,
        *,
        capacity: int,
        max_age: int,
        per_prompt: int | None = None,
        seed: int = 0,
    ) -> None:
        self.kind = kind
        self.capacity = check_integer("capacity", capacity, 1)
        self.max_age = check_integer("max_age", max_age, 1)
        self.per_prompt = None if per_prompt is None else check_integer("per_prompt", per_prompt, 1)
        self.seed = check_integer("seed", seed, 0)
        self.samples: list[Stored] = []
        """The responses, the oldest first. Every change makes a new list."""
        self.step = 0
        self._draws = 0

    def __len__(self) -> int:
        """Number of responses kept."""
        return len(self.samples)

    def advance(self, step: int) -> None:
        """Sets the current step, and evicts responses that have become too old. The step never
        decreases."""
        self.step = check_integer("step", step, self.step)
        self._evict()

    def put(self, samples: Iterable[Stored]) -> None:
        """Adds these samples, and evicts those over the limits. A later sample advances the current
        step."""
        new = list(samples)
        # stable: then by arrival
        self.samples = sorted([*self.samples, *new], key=lambda kept: kept.step)
        self.step = max([self.step, *(kept.step for kept in new)])
        self._evict()

    def next_rng(self) -> np.random.Generator:
        """The generator of the next draw, from the seed and the number of earlier draws, which is
        saved."""
        self._draws += 1
        return np.random.default_rng([self.seed, self._draws - 1])

    def _evict(self) -> None:
        kept = [x for x in self.samples if self.step - x.step <= self.max_age]
        if self.per_prompt is not None:
            newer: Counter[Id] = Counter()
            newest_first = []
            for sample in reversed(kept):
                newer[sample.id] += 1
                if newer[sample.id] <= self.per_prompt:
                    newest_first.append(sample)
            kept = newest_first[::-1]
        self.samples = kept[-self.capacity :]

    def state_dict(self) -> dict[str, Any]:
        """All responses, the seed and the number of draws, as arrays and JSON values; without the
        settings.

        Responses have any length. Arrays of one name, type and number of axes are concatenated into
        one flat array, and their rows and shapes are stored with it.
        """
        columns: dict[tuple[str, str, int], list[int]] = {}
        for row, sample in enumerate(self.samples):
            for name, array in sample.response.items():
                columns.setdefault((name, array.dtype.str, array.ndim), []).append(row)
        state: dict[str, Any] = {
            "buffer": {
                "kind": self.kind,
                "seed": self.seed,
                "draws": self._draws,
                "step": self.step,
                "ids": [sample.id for sample in self.samples],
                "columns": [list(column) for column in columns],
            },
            "buffer/rewards": np.array(
                [sample.reward for sample in self.samples], dtype=np.float64
            ),
            "buffer/advantages": np.array(
                [sample.advantage for sample in self.samples], dtype=np.float64
            ),
            "buffer/success": np.array(
                [sample.success for sample in self.samples], dtype=np.float64
            ),
            "buffer/steps": np.array([sample.step for sample in self.samples], dtype=np.int64),
        }
        for at, ((name, _, axes), rows) in enumerate(columns.items()):
            arrays = [self.samples[row].response[name] for row in rows]
            state[f"buffer/{at}/rows"] = np.array(rows, dtype=np.int64)
            state[f"buffer/{at}/shapes"] = np.array(
                [x.shape for x in arrays], dtype=np.int64
            ).reshape(len(rows), axes)
            state[f"buffer/{at}/flat"] = np.concatenate([x.ravel() for x in arrays])
        return state

    def _fits(self, sample: Stored) -> bool:
        """Whether this kind of buffer could have stored the sample."""
        return True

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores `state_dict()` to the bit; samples above the current limits are evicted.

        Raises:
            StateError: the state is damaged, of another kind or seed, or holds a response that this
                kind of buffer does not store. Nothing is changed then.
        """
        try:
            about = state["buffer"]
            if about["kind"] != self.kind or about["seed"] != self.seed:
                raise StateError(
                    f"saved by kind={about['kind']!r}, seed={about['seed']!r}, and this is "
                    f"kind={self.kind!r}, "
                    f"seed={self.seed!r}; draws would differ"
                )
            step, draws = (
                check_integer("step", about["step"], 0),
                check_integer("draws", about["draws"], 0),
            )
            samples = _unpacked(state, about["ids"], about["columns"])
            steps = [sample.step for sample in samples]
            if (
                steps != sorted(steps)
                or max(steps, default=0) > step
                or not all(map(self._fits, samples))
            ):
                raise StateError(
                    f"responses out of order, later than step {step}, or of another kind"
                )
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            IndexError,
            OverflowError,
        ) as error:
            raise StateError(
                f"The state cannot be loaded into this buffer ({type(error).__name__}: {error}): "
                "the state is "
                "damaged, or belongs to another buffer. Start with an empty buffer: it fills "
                "within a few steps."
            ) from error
        self.samples, self.step, self._draws = samples, step, draws
        self._evict()


def stored_rows(
    rows: IntArray,
    ids_R: Sequence[Id],
    responses_R: Sequence[Mapping[str, Any]],
    rewards_R: FloatArray,
    advantages_R: FloatArray,
    step: int,
    success_R: FloatArray | None = None,
) -> list[Stored]:
    """These rows of a batch as stored responses; `InputError` unless there is one response per
    rollout.

    >>> batch = ["a", "b"], [{}, {}], np.array([1.0, 0.0]), np.array([0.5, -0.5])
    >>> [(row.id, row.advantage, row.step) for row in stored_rows(np.array([1]), *batch, step=2)]
    [('b', -0.5, 2)]
    """
    if len(responses_R) != len(ids_R):
        raise InputError(
            f"responses_R has {len(responses_R)} entries for {len(ids_R)} ids: give one per "
            "rollout."
        )
    step = check_integer("step", step, 0)
    success_V = [math.nan] * len(rows) if success_R is None else success_R[rows].tolist()
    return [
        Stored(
            ids_R[row],
            responses_R[row],
            float(rewards_R[row]),
            float(advantages_R[row]),
            step,
            success,
        )
        for row, success in zip(rows.tolist(), success_V, strict=True)
    ]


def _frozen(name: Any, value: Any) -> Array:
    """A read-only copy in this machine's byte order."""
    array = np.array(value)
    if array.dtype.kind not in "biuf":
        raise InputError(
            f"response[{name!r}] is of type {array.dtype}: an array of bools, integers or floats "
            "can be saved. Store "
            "token ids instead of text, and float32 instead of bfloat16."
        )
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    array.setflags(write=False)
    return array


def _unpacked(state: Mapping[str, Any], ids: Any, columns: Any) -> list[Stored]:
    """The responses that `state_dict` packed; raises one of several errors if they are
    inconsistent."""
    responses: list[dict[str, Array]] = [{} for _ in ids]
    for at, (name, dtype, axes) in enumerate(columns):
        rows, shapes, flat = (
            np.asarray(state[f"buffer/{at}/{key}"]) for key in ("rows", "shapes", "flat")
        )
        if (
            flat.dtype.str != dtype
            or flat.ndim != 1
            or shapes.shape != (len(rows), axes)
            or (shapes < 0).any()
        ):
            raise StateError(f"{name!r} holds {flat.dtype.str} in the shapes {shapes.shape}")
        ends = [0, *np.cumsum(np.prod(shapes, axis=1, dtype=np.int64)).tolist()]
        if ends[-1] != flat.size:
            raise StateError(f"{name!r} holds {flat.size} numbers, its shapes {ends[-1]}")
        for row, start, end, shape in zip(
            rows.tolist(), ends[:-1], ends[1:], shapes.tolist(), strict=True
        ):
            if not 0 <= row < len(ids) or name in responses[row]:
                raise StateError(f"{name!r} belongs to row {row} of {len(ids)}, or does so twice")
            responses[row][name] = flat[start:end].reshape(shape)
    numbers = (
        np.asarray(state[f"buffer/{key}"]).tolist()
        for key in ("rewards", "advantages", "steps", "success")
    )
    return [Stored(*row) for row in zip(ids, responses, *numbers, strict=True)]

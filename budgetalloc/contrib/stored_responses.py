"""Correct responses of earlier steps, which stand for a wrong one where all responses of a prompt
fail."""

import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from budgetalloc.beliefs.ids import Id, check_ids, stable_key
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.state import reading
from budgetalloc.budget import IntArray
from budgetalloc.errors import StateError, check_integer, check_number, check_seed
from budgetalloc.policies import Step
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.parts import Part

logger = logging.getLogger(__name__)


class Stored(NamedTuple):
    """A correct response. Its tokens are not needed, because it is not trained on."""

    id: Id
    reward: float
    step: int


class CorrectResponseBuffer(Part):
    """Keeps correct responses of each prompt; if all of a prompt's responses fail, a stored one
    stands for a wrong one: `AdaptiveGRPOCallback(trainer, "ar3po", buffer=...)`.

    AR3PO (arXiv 2509.25808) stores every new correct response, and draws uniformly among those of
    the prompt. Advantages come from the rewards after the substitution, and the replaced rows are
    left out of the loss: the paper's option II, which it reports as the best, and which is not
    biased as its option I is. The paper does not say how many it keeps or for how long, and no code
    was released: `capacity`, `per_prompt`, `max_age` and a uniform draw of the response to replace
    are this package's choice. A group with fewer than two rewards is unchanged, because its
    advantages would stay 0.

    Responses older than `max_age` are evicted first, then the oldest of each prompt, then the
    oldest of all. The metric `reused` counts the replaced rows of a step.

    Args:
        capacity: Most responses kept.
        per_prompt: Most responses of one prompt.
        max_age: In steps; a response of step s is kept up to step s + `max_age`.
        threshold: A response is correct if its success is above this.
        seed: Seeds the draws.

    >>> buffer = CorrectResponseBuffer(seed=0)
    >>> buffer.add([Stored("a", reward=1.0, step=0)])
    >>> buffer.substitute(["a", "a", "b", "b"], np.zeros(4), np.zeros(4), step=1)  # none of b
    (array([1]), array([0., 1., 0., 0.]))
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
        self.capacity = check_integer("capacity", capacity, 1)
        self.per_prompt = check_integer("per_prompt", per_prompt, 1)
        self.max_age = check_integer("max_age", max_age, 1)
        self.threshold = check_number("threshold", threshold, -math.inf, math.inf)
        self.seed = check_seed(seed)
        self.stored: list[Stored] = []
        """The responses, the oldest first."""
        self._reused = 0

    def add(self, new: Iterable[Stored]) -> None:
        """Stores responses of one step, and evicts those over the limits."""
        every = [*self.stored, *new]
        kept, newer = [], Counter[Id]()
        for each in reversed(every):  # the newest first
            newer[each.id] += 1
            if newer[each.id] <= self.per_prompt and every[-1].step - each.step <= self.max_age:
                kept.append(each)
        self.stored = kept[: self.capacity][::-1]

    def substitute(
        self, ids_R: Sequence[Id], rewards_R: FloatArray, success_R: FloatArray, step: int
    ) -> tuple[IntArray, FloatArray]:
        """Replaces a wrong response by a stored correct one for each prompt without any success.

        The rollouts are those of the whole step, with all its rounds. A reward or success of NaN is
        none, and is never replaced.

        Returns:
            The rows that are replaced, ascending, and the rewards of all rows after that.
        """
        kept: dict[Id, list[float]] = {}
        for each in self.stored:
            if step - each.step <= self.max_age:
                kept.setdefault(each.id, []).append(each.reward)
        rows_of: dict[Id, list[int]] = {}
        for row in np.flatnonzero(~np.isnan(rewards_R) & ~np.isnan(success_R)).tolist():
            rows_of.setdefault(ids_R[row], []).append(row)
        failed = [
            name
            for name, rows in rows_of.items()
            if name in kept and len(rows) >= 2 and success_R[rows].max() <= self.threshold
        ]
        failed.sort(key=stable_key)  # draws do not depend on the order of prompts in the batch
        draws = np.random.default_rng([self.seed, step]).random((len(failed), 2))
        after_R, replaced = rewards_R.copy(), []
        for name, (which, wrong) in zip(failed, draws.tolist(), strict=True):
            replaced.append(rows_of[name][int(wrong * len(rows_of[name]))])
            after_R[replaced[-1]] = kept[name][int(which * len(kept[name]))]
        self._reused = len(replaced)
        return np.array(sorted(replaced), dtype=np.int64), after_R

    def learn(self, rollouts: Rollouts | None, step: Step) -> dict[str, float]:
        """Stores the correct responses of a step."""
        if rollouts is None:
            return {}
        correct_R = (rollouts.success_R > self.threshold) & np.isfinite(rollouts.rewards_R)
        self.add(
            Stored(rollouts.ids_R[at], float(rollouts.rewards_R[at]), rollouts.step)
            for at in np.flatnonzero(correct_R).tolist()
        )
        return {"reused": float(self._reused)}

    def state_dict(self) -> dict[str, Any]:
        """All responses and the seed, under the key "buffer"."""
        ids, rewards, steps = ([each[at] for each in self.stored] for at in range(3))
        return {"buffer": {"seed": self.seed, "ids": ids, "rewards": rewards, "steps": steps}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores `state_dict()` to the bit; responses above the current limits are evicted.
        Without it the buffer starts empty. Raises `StateError`, and changes nothing, for a state of
        another seed."""
        if "buffer" not in state:
            logger.warning("The checkpoint has no state of a buffer: the buffer starts empty.")
            return
        with reading("buffer"):
            saved = state["buffer"]
            if saved["seed"] != self.seed:
                raise StateError(
                    f"The buffer's state was saved with seed={saved['seed']}, and this one has "
                    f"seed={self.seed}: draws would differ. Pass the same buffer."
                )
            columns = check_ids(saved["ids"], "ids"), saved["rewards"], saved["steps"]
            stored = [
                Stored(name, check_number("rewards", reward, -math.inf, math.inf), int(step))
                for name, reward, step in zip(*columns, strict=True)
            ]
        self.stored = []
        self.add(stored)

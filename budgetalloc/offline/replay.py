"""Replay: a world that answers the requests of a policy with the logged rewards of a finished
run."""

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.ids import Id, Index, check_ids, factorize, stable_key
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import EQUAL
from budgetalloc.errors import InputError, check_integer, check_seed, check_type, keywords
from budgetalloc.logs.ledger import Ledger

_Ints = NDArray[np.int64]

_NEAR = 2  # visits before and after the present one that the model and `rates` look at
_PRIOR = 0.5  # Jeffreys' prior of the model
NO_HISTORY = (
    "no history here: no prompt returns in a later step of the log, so policies that learn from "
    "earlier steps have nothing to learn from, and these figures do not compare policies"
)
"""Said of replays of a log in which every prompt has one visit."""


@keywords
class Replay:
    """A world made of a `Ledger`: a request for rollouts of a prompt is answered with the rewards
    of its logged visits.

    A *visit* is a step of the log in which the prompt had rollouts, and *sweep* v is the v-th visit
    of every prompt. In sweep v a prompt is answered with the rewards logged at its v-th visit, in
    random order, each once. When they are used up, or if the prompt has fewer visits, a model
    answers from visits v-2 to v+2, or from the last ones. For a log of 0 and 1, the prompt's rate
    is drawn once a sweep from Beta(1/2 + successes, 1/2 + failures) of these visits, so modelled
    rewards are beta-binomial. For a log with graded rewards, the rewards of these visits are drawn
    again, with replacement. `drawn` and `modelled` count the two kinds of answers, and `modelled_R`
    tells them apart in the last answer. Give the modelled share with every figure from a replay.

    **Learning does not react to the allocation.** Sweep v has the rewards of the v-th visits
    regardless of the policy's earlier choices, so the drift is that of the logged run. A replay can
    show what a policy would have observed and how many groups would have been mixed. It cannot show
    what the language model would have learned.

    In `simulate`, time is measured in rollouts: `learn` moves on to the next sweep when as many
    have been answered as the log generated up to it. After the last sweep the log has ended. You
    may also set `sweep`.

    Args:
        ledger: One row per rollout. The world's rewards are its `success`: the rewards, mapped to
            [0, 1] if they have a range. NaN is not used as an answer; prompts with only NaN are not
            in `ids`.
        seed: Seeds the order of rewards and the model, at least 0. An answer depends on the seed,
            the id, the sweep and the number of earlier rollouts of the prompt in the sweep. It
            depends neither on other prompts nor on the order of ids or rows.

    Raises:
        InputError: no or bad rewards, an unknown id, a sweep beyond the log.

    >>> import budgetalloc as ba
    >>> import pandas as pd
    >>> ledger = ba.Ledger.of_frame(pd.DataFrame({
    ...     "step": np.repeat([0, 1], 8), "prompt": ["a"] * 4 + ["b"] * 4 + ["a"] * 4 + ["b"] * 4,
    ...     "reward": [0, 0, 0, 1.0] + [0, 1, 1, 1] + [0, 1, 0, 1] + [1] * 4}))
    >>> world = Replay(ledger, seed=0)
    >>> # all that was logged
    >>> world.rollout(["a"] * 4).sum(), world.rollout(["b", "b", "b", "b"]).sum()
    (np.float64(1.0), np.float64(3.0))
    >>> world.rollout(["a", "b"]), world.drawn, world.modelled  # more than was logged
    (array([0., 1.]), 8, 2)
    >>> world.rates(["a", "b"])  # 3 of 8 and 7 of 8 in both visits
    array([0.375, 0.875])
    >>> world.sweep = 1
    >>> world.rollout(["b"] * 4)
    array([1., 1., 1., 1.])
    """

    def __init__(self, ledger: Ledger, *, seed: int = 0) -> None:
        self.seed = check_seed(seed)
        self.drawn = 0
        """Rollouts answered by logged rewards so far."""
        self.modelled = 0
        """Rollouts answered by the model so far."""
        self.signal = 0.0
        """The sum over these rollouts of 4 times the variance of their prompt's logged rewards."""
        self.modelled_R: NDArray[np.bool_] = np.zeros(0, dtype=bool)
        """Which rewards of the last answer the model gave, shape (R,)."""
        check_type("ledger", ledger, Ledger, "a log, such as ba.Ledger.read(path)")
        rewards_R = ledger.frame["success"].to_numpy(dtype=np.float64)
        outside_R = (rewards_R < 0) | (rewards_R > 1)  # False for NaN
        if outside_R.any():
            at = int(np.argmax(outside_R))
            raise InputError(
                f"ledger: row {at} has the success {rewards_R[at]:g}, outside [0, 1]. Give the "
                "ledger the range of its rewards, as Ledger.read(..., reward_range=(lowest, "
                "highest))."
            )
        every, prompt_R = factorize(check_ids(ledger.frame["prompt"].tolist(), "ledger.prompt"))
        answers_P = np.bincount(prompt_R[~np.isnan(rewards_R)], minlength=len(every)) > 0
        if not answers_P.any():
            raise InputError(
                f"ledger has {len(rewards_R)} rows and none with a reward. Use a Ledger of a run "
                "that scored its rollouts.",
                argument="ledger",
            )
        self.ids: list[Id] = [every[at] for at in np.flatnonzero(answers_P)]
        self._index = Index(self.ids)
        rows_R = np.flatnonzero(answers_P[prompt_R])
        prompt_R = (np.cumsum(answers_P) - 1)[prompt_R[rows_R]]
        # By prompt, visit and reward: the replay does not depend on the order of a visit's rows.
        step_R, rewards_R = ledger.frame["step"].to_numpy()[rows_R], rewards_R[rows_R]
        order = np.lexsort((rewards_R, step_R, prompt_R))
        prompt_R, step_R, rewards_R = prompt_R[order], step_R[order], rewards_R[order]
        opens_R = np.ones(len(order), dtype=bool)  # a visit G begins at this row
        opens_R[1:] = (prompt_R[1:] != prompt_R[:-1]) | (step_R[1:] != step_R[:-1])
        scored_R = ~np.isnan(rewards_R)
        rows_G = np.flatnonzero(opens_R)
        self._visits_P: _Ints = np.bincount(prompt_R[rows_G])
        # the place G of each prompt's first visit
        self._first_P: _Ints = np.cumsum(self._visits_P) - self._visits_P
        self._rewards = rewards_R[scored_R]
        self._graded = bool(((self._rewards > EQUAL) & (self._rewards < 1 - EQUAL)).any())
        self._scored_G1 = _reach(np.add.reduceat(scored_R.astype(np.int64), rows_G))
        self._passed_G1 = _reach(np.add.reduceat(np.where(scored_R, rewards_R, 0.0), rows_G))
        self._squares_G1 = _reach(np.add.reduceat(np.where(scored_R, rewards_R**2, 0.0), rows_G))
        visit_G = np.arange(len(rows_G)) - np.repeat(self._first_P, self._visits_P)
        size_G = np.diff(np.append(rows_G, len(order)))
        self._ends_V: _Ints = np.bincount(visit_G, weights=size_G).astype(np.int64).cumsum()
        self.group = int(np.median(size_G))
        """Rollouts of a visit, the median."""
        self._success: float | None = None  # in the current sweep
        self.sweep = 0

    def again(self, seed: int) -> "Replay":
        """The same log from its beginning with another seed. This world is not changed, and the log
        is not copied.

        >>> import budgetalloc as ba
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"step": 0, "prompt": "a", "reward": [0, 1.0] * 10})
        >>> world = Replay(ba.Ledger.of_frame(frame))
        >>> one, other = (world.again(seed).rollout(["a"] * 6) for seed in (1, 2))
        >>> one, other, world.drawn
        (array([1., 0., 1., 1., 1., 0.]), array([0., 1., 1., 0., 1., 0.]), 0)
        """
        other = copy.copy(self)
        other.seed = check_seed(seed)
        other.drawn = other.modelled = other.sweep = 0
        other.signal = 0.0
        return other

    @property
    def sweeps(self) -> int:
        """The largest number of visits of a prompt."""
        return len(self._ends_V)

    @property
    def rollouts(self) -> int:
        """The rollouts of the log's prompts: so many can be answered before the log ends."""
        return int(self._ends_V[-1])

    @property
    def sweep(self) -> int:
        """The current sweep, from 0. Setting it starts that sweep again, with all its logged
        rewards."""
        return self._sweep

    @sweep.setter
    def sweep(self, sweep: int) -> None:
        check_integer("sweep", sweep, 0, self.sweeps - 1)
        # rollouts answered, as `learn` counts them
        self._clock = int(self._ends_V[sweep - 1]) if sweep else 0
        self._open(int(sweep))

    def rollout(self, ids_R: Iterable[Any]) -> FloatArray:
        """The next logged or modelled reward of each of these prompts in the current sweep, shape
        (R,)."""
        at_R = self._find(ids_R, "ids_R")
        if self._sweep >= self.sweeps:
            raise InputError(
                f"The log has ended: {self._clock} rollouts were answered in its {self.sweeps} "
                f"sweeps of {self._ends_V[-1]} rollouts. Use fewer steps, or set world.sweep = 0 "
                "to begin again."
            )
        order = np.argsort(at_R, kind="stable")
        at_P, rollouts_P = np.unique(at_R, return_counts=True)
        self._start_sweep(at_P)
        rewards, marks = list[float](), list[bool]()
        for at, rollouts in zip(at_P.tolist(), rollouts_P.tolist(), strict=True):
            answer, drawn = self._answer(at, rollouts)
            rewards += answer
            marks += [False] * drawn + [True] * (rollouts - drawn)
        rewards_R, self.modelled_R = np.empty(len(at_R)), np.empty(len(at_R), dtype=bool)
        rewards_R[order], self.modelled_R[order] = rewards, marks
        modelled = sum(marks)
        self.drawn += len(at_R) - modelled
        self.modelled += modelled
        self.signal += float(4 * self._variances(at_R).sum())
        self._clock += len(at_R)
        return rewards_R

    def learn(self, advantages_R: ArrayLike) -> None:
        """Ends a step, and starts the next sweep if the current one is spent. The advantages are
        not used."""
        sweep = int(np.searchsorted(self._ends_V, self._clock, side="right"))
        if sweep > self._sweep:
            self._open(sweep)

    def rates(self, ids_P: Iterable[Any]) -> FloatArray:
        """The mean reward of each prompt over its visits v-2 to v+2, v being the current sweep,
        shape (P,). Beyond a prompt's last visit, v is its last visit. Ids may repeat.

        It is an *estimate* of the true rate: from 40 rollouts if a visit has 8. A value computed
        from these rates is too high for an oracle that maximises it on them, and for a policy that
        has observed some of the same rewards.

        Raises:
            InputError: an unknown id.
        """
        low_P, high_P = self._near(self._find(ids_P, "ids_P"))
        # sums are off by rounding
        return np.clip(_mean(self._passed_G1, self._scored_G1, low_P, high_P), 0.0, 1.0)

    def variances(self, ids_P: Iterable[Any]) -> FloatArray:
        """The variance of each prompt's rewards over its visits v-2 to v+2, shape (P,): p (1-p) for
        0/1 rewards."""
        return self._variances(self._find(ids_P, "ids_P"))

    def _variances(self, at_P: _Ints) -> FloatArray:
        low_P, high_P = self._near(at_P)
        squares_P = _mean(self._squares_G1, self._scored_G1, low_P, high_P)
        mean_P = _mean(self._passed_G1, self._scored_G1, low_P, high_P)
        return np.maximum(squares_P - mean_P**2, 0.0)

    def success(self) -> float:
        """The mean of `rates` over all prompts, in [0, 1]."""
        if self._success is None:
            self._success = float(self.rates(self.ids).mean())
        return self._success

    def _open(self, sweep: int) -> None:
        self._sweep = sweep
        self._success = None
        # Of each prompt requested in this sweep: logged rewards not yet drawn, the generator, and
        # the model, which is a rate, or the rewards to draw from in a graded log.
        self._left: dict[int, tuple[list[float], np.random.Generator, float | FloatArray]] = {}

    def _start_sweep(self, at_P: _Ints) -> None:
        """Shuffles the logged rewards of prompts not yet requested in this sweep, and draws the
        model's rates."""
        new_P = at_P[[at not in self._left for at in at_P.tolist()]]
        here_P = self._sweep < self._visits_P[new_P]
        visit_P = np.where(here_P, self._first_P[new_P] + self._sweep, 0)
        low_P, high_P = self._near(new_P)
        passed_P = self._passed_G1[high_P] - self._passed_G1[low_P]
        places = (visit_P, visit_P + here_P, low_P, high_P)
        ends = (self._scored_G1[x_P].tolist() for x_P in places)
        columns = new_P.tolist(), passed_P.tolist(), *ends
        for at, passed, start, stop, first, end in zip(*columns, strict=True):
            rng = np.random.default_rng([self.seed, stable_key(self.ids[at]), self._sweep])
            logged = self._rewards[start:stop].tolist()
            rng.shuffle(logged)
            model: FloatArray | float = self._rewards[first:end]
            if not self._graded:
                model = rng.beta(_PRIOR + passed, _PRIOR + max(end - first - passed, 0.0))
            self._left[at] = logged, rng, model

    def _answer(self, at: int, rollouts: int) -> tuple[list[float], int]:
        """The next rewards of one prompt, and how many of them, the first ones, are logged."""
        left, rng, model = self._left[at]
        rewards, left[:rollouts] = left[:rollouts], []
        drawn = len(rewards)
        if drawn < rollouts:
            u_R = rng.random(rollouts - drawn)
            if isinstance(model, float):
                rewards += (u_R < model).tolist()
            else:
                rewards += model[(u_R * len(model)).astype(np.int64)].tolist()
        return rewards, drawn

    def _near(self, at_P: _Ints) -> tuple[_Ints, _Ints]:
        """The places G of the visits around the current one, with a reward: from, and up to but
        without; (P,), (P,)."""
        first_P, visits_P = self._first_P[at_P], self._visits_P[at_P]
        visit_P = np.minimum(self._sweep, visits_P - 1)
        low_P = first_P + np.maximum(visit_P - _NEAR, 0)
        high_P = first_P + np.minimum(visit_P + _NEAR + 1, visits_P)
        # a visit without any reward
        while (empty_P := self._scored_G1[high_P] == self._scored_G1[low_P]).any():
            low_P = np.maximum(low_P - empty_P, first_P)
            high_P = np.minimum(high_P + empty_P, first_P + visits_P)
        return low_P, high_P

    def _find(self, ids: Iterable[Any], name: str) -> _Ints:
        listed = check_ids(ids, name)
        at = self._index.find(listed, name)
        if (at < 0).any():
            wrong = listed[int(np.argmax(at < 0))]
            raise InputError(
                f"{name}: {wrong!r} has no reward in this log: use world.ids.", argument=name
            )
        return at


def _mean(sums_G1: FloatArray, counts_G1: NDArray[Any], low_P: _Ints, high_P: _Ints) -> FloatArray:
    """Sums over counts of the places from low to high, shape (P,)."""
    return np.asarray((sums_G1[high_P] - sums_G1[low_P]) / (counts_G1[high_P] - counts_G1[low_P]))


def _reach(values_G: NDArray[Any]) -> NDArray[Any]:
    """Cumulative sums from 0, so that differences are sums over visits, shape (G + 1,)."""
    return np.concatenate([np.zeros(1, dtype=values_G.dtype), np.cumsum(values_G)])

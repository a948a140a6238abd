"""Lengths in tokens: of each prompt, and of its next answer as expected from earlier rollouts."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.ids import check_ids, factorize, rows_to_read
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.state import Stateful, Table

_KEPT = 0.9  # the share of its weight that a rollout keeps at each later rollout of its prompt


def expected_tokens(
    weight_PK: ArrayLike, tokens_PK: ArrayLike, mean_K: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """The tokens expected of a success and of a failure of each prompt, shape (P,) each.

    Lengths are estimated hierarchically. A prompt without rollouts has the pool's means. All its
    rollouts together set its mean length relative to the pool, and then successes and failures get
    separate estimates. A prompt that has only failed therefore has its own estimate for the length
    of a success, too. The pool's means weigh one rollout.

    Args:
        weight_PK: The weight of the prompt's successes and of its failures, shape (P, 2).
        tokens_PK: Sums of their tokens with the same weights, shape (P, 2).
        mean_K: The pool's mean tokens of a success and of a failure, positive, shape (2,).

    >>> expected_tokens([[0, 0], [0, 3]], [[0, 0], [0, 600]], [50, 100])  # failures of 200 tokens
    (array([50., 90.]), array([100., 195.]))
    """
    weight, tokens, mean = (
        np.asarray(each, dtype=np.float64) for each in (weight_PK, tokens_PK, mean_K)
    )
    relative_P = (mean.mean() + tokens.sum(axis=1)) / (mean.mean() + weight @ mean)
    expected_PK = (relative_P[:, None] * mean + tokens) / (1 + weight)
    return expected_PK[:, 0], expected_PK[:, 1]


class Lengths(Stateful):
    """The tokens of each prompt, and of its successes and its failures.

    About the last ten rollouts of a prompt count. A graded success u counts as u of a
    success. Any cost of a rollout can stand in place of its tokens.

    Args:
        least: Shorter answers count as this long: by default as the end token.

    >>> lengths = Lengths()
    >>> lengths.observe(["a", "a", "b"], [100, 300, 40], [1, 0, 1], [7, 7, 5])
    >>> prompt_P, answer_P = lengths.expected(["a", "b", "new"], [0.5, 1.0, 0.5])
    >>> prompt_P, answer_P.round()
    (array([7., 5., 6.]), array([193.,  57., 159.]))
    """

    saved = ("_prompts",)

    def __init__(self, least: float = 1.0) -> None:
        self.least = least
        both = np.zeros(2)  # of successes, and of failures
        self._prompts = Table({"prompt": 0.0, "weight": both, "tokens": both})

    def __len__(self) -> int:
        """Number of prompts with rollouts."""
        return len(self._prompts)

    def observe(
        self,
        ids_R: Iterable[Any],
        lengths_R: ArrayLike,
        success_R: ArrayLike,
        prompt_lengths_R: ArrayLike,
    ) -> None:
        """Adds a step's rollouts: tokens of each answer, success in [0, 1] (NaN: ignored), tokens
        of its prompt."""
        ids, success = check_ids(ids_R, "ids_R"), np.asarray(success_R, dtype=np.float64)
        scored_R = np.flatnonzero(~np.isnan(success))
        ids_V, group_R = factorize([ids[at] for at in scored_R.tolist()])
        at_V = self._prompts.add(ids_V)
        share_R = success[scored_R]
        length_R = np.maximum(np.asarray(lengths_R, dtype=np.float64)[scored_R], self.least)
        fading_V = (_KEPT ** np.bincount(group_R, minlength=len(ids_V)))[:, None]
        for name, each_R in (("weight", np.ones(len(length_R))), ("tokens", length_R)):
            added_VK = np.column_stack(
                [
                    np.bincount(group_R, each_R * share_R, len(ids_V)),
                    np.bincount(group_R, each_R * (1 - share_R), len(ids_V)),
                ]
            )
            sums_PK = self._prompts[name]
            sums_PK[at_V] = sums_PK[at_V] * fading_V + added_VK
        prompt_R = np.asarray(prompt_lengths_R, dtype=np.float64)[scored_R]
        self._prompts["prompt"][at_V[group_R]] = np.maximum(prompt_R, 1.0)

    def expected(self, ids_P: Iterable[Any], rate_P: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Tokens of each prompt, and expected tokens of its next answer; 1 before the first
        rollout. Shape (P,) each.

        `rate_P` are their success rates, in [0, 1], shape (P,).
        """
        at_P, rate = self._prompts.find(ids_P), np.asarray(rate_P)
        if not len(self):
            return np.ones(at_P.size), np.ones(at_P.size)
        prompt_P = self._prompts["prompt"]
        weight_PK, tokens_PK = self._prompts["weight"], self._prompts["tokens"]
        weight_K, tokens_K = weight_PK.sum(axis=0), tokens_PK.sum(axis=0)
        overall = tokens_K.sum() / weight_K.sum()
        # shrunk to the overall mean with the weight of one rollout
        mean_K = (tokens_K + overall) / (weight_K + 1.0)
        rows_K, at_P = rows_to_read(at_P, len(self))
        # The last row is of no rollouts, because an unseen prompt has the place -1.
        cold = np.zeros((1, 2))
        expected = expected_tokens(
            np.append(weight_PK[rows_K], cold, axis=0),
            np.append(tokens_PK[rows_K], cold, axis=0),
            mean_K,
        )
        success_P, failure_P = (each.take(at_P) for each in expected)
        prompt_P = np.append(prompt_P[rows_K], prompt_P.mean()).take(at_P)
        return prompt_P, rate * success_P + (1 - rate) * failure_P

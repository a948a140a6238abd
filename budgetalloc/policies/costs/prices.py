"""What a group of rollouts costs: its prompt, once, and each rollout; the size of a group that follows from both."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.posterior import Belief, FloatArray
from budgetalloc.budget import Budget, IntArray
from budgetalloc.errors import StateError, check_array
from budgetalloc.values import Value

Price = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]
"""(tokens of each prompt, expected tokens of its answers) -> (cost of a group's prompt, once; cost of a rollout), shape
(P,) each."""

_FADING = 0.98  # the share of its weight that a step keeps at each later step: answers and machine change
_DOUBT = 0.1  # the steps for which the first guess of the shares counts
_GUESS = np.array([0.0, 0.1, 0.1, 1.0])  # relative prices: a rollout, a prompt's token in a group and in a rollout, ...


def tokens(prompt_P: FloatArray, answer_P: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The price of `cost="tokens"`: a prompt's tokens are computed once a group, those of an answer in each rollout."""
    return prompt_P, answer_P


def least_groups(prompt_costs_P: FloatArray, costs_P: FloatArray, budget: Budget) -> IntArray:
    """The smallest group worth its prompt: sqrt(cost of the prompt / cost of a rollout), as a power of two, shape (P,).

    If the means of groups differ by a variance b and the rollouts of a group by w, the variance bought per cost is
    largest at groups of sqrt(prompt / rollout * w / b) (Cochran, Sampling Techniques, 1977, sec. 10.6). The gradients
    of prompts are taken to differ as much as those of the rollouts of one prompt: w = b.

    Args:
        prompt_costs_P: Cost of a group's prompt, at least 0, shape (P,).
        costs_P: Cost of one rollout, positive, shape (P,).
        budget: Its smallest and its largest group are the bounds.

    >>> least_groups(np.array([0, 400, 4000, 40000.0]), np.full(4, 400.0), Budget(256, floor=0, min_group=1, cap=64))
    array([1, 1, 4, 8])
    """
    ideal_P = 0.5 * np.log2(np.maximum(prompt_costs_P / costs_P, 1.0))
    most = 2.0 ** np.floor(np.log2(budget.largest_group))
    least_P = np.minimum(2.0 ** np.rint(ideal_P), most).astype(np.int64)
    return np.asarray(np.maximum(-(-least_P // budget.quantum) * budget.quantum, budget.smallest_group))


def per_cost(value: Value, costs: tuple[FloatArray, FloatArray] | None) -> Value:
    """The value of n rollouts, each gain divided by what it costs in units of the mean rollout; `value` without costs.

    The first rollouts of a prompt share the cost of its text: up to the group that buys most per cost, the gain of
    each is that of the group, divided by the group's cost; of each further rollout, its own gain, divided by its own
    cost. So concave values stay concave.

    Args:
        value: What n rollouts are worth.
        costs: The cost of each prompt once a group, and of one rollout; None for none.

    >>> from budgetalloc import Point, mixed_group
    >>> both = per_cost(mixed_group, (np.array([0.0, 900.0]), np.array([100.0, 100.0])))
    >>> both(Point([0.5, 0.5]), [0, 2, 3, 4, 5]).round(3)  # the long prompt: groups of 4
    array([[0.   , 0.5  , 0.75 , 0.875, 0.938],
           [0.   , 0.135, 0.202, 0.269, 0.332]])
    """
    if costs is None:
        return value
    once_P1, each_P1 = (x[:, None] / costs[1].mean() for x in costs)
    # Of equal prompts one after another gets a whole group, so that none pays for its text and gets half a group.
    before_P1 = 1 + 1e-6 * np.linspace(1.0, 0.0, len(each_P1))[:, None]

    def priced(belief: Belief, counts_N: ArrayLike) -> FloatArray:
        counts_N, values_PN = np.asarray(counts_N, dtype=np.float64), value(belief, counts_N)
        own_PN = values_PN / each_P1
        if counts_N[0] or len(counts_N) == 1 or not once_P1.any():  # every prompt has a group, or groups cost nothing
            return np.asarray(own_PN)
        rate_PN = values_PN[:, 1:] / (once_P1 + each_P1 * counts_N[1:])
        best_P1 = 1 + np.argmax(rate_PN, axis=1, keepdims=True)
        rate_P1, group_P1 = np.take_along_axis(rate_PN, best_P1 - 1, axis=1) * before_P1, counts_N[best_P1]
        further_PN = own_PN - np.take_along_axis(own_PN, best_P1, axis=1)
        shared_PN = rate_P1 * np.minimum(counts_N, group_P1) + np.where(counts_N > group_P1, further_PN, 0.0)
        return np.asarray(np.where(once_P1 > 0, shared_PN, own_PN))

    return priced


@dataclass(eq=False)
class Seconds:
    """The price of `cost="seconds"`, fitted to the seconds of the steps so far.

    A step's seconds are a sum over its rollouts, the tokens of its prompts once a group, the same in every rollout, and
    the tokens of all answers, each with a price of at least 0. The fit begins at a guess (a token of a prompt is worth
    a tenth of one of an answer) and minimises squared errors, in which old steps fade. Where seconds do not follow
    tokens, as where all rollouts wait for the longest, the rollout gets the price, and all prompts cost nearly the
    same.

    >>> seconds, rng = Seconds(), np.random.default_rng(0)
    >>> for _ in range(50):  # each rollout 10 ms and each token of an answer 1 ms; prompts are free
    ...     once, answers = rng.integers(1_000, 2_000), rng.integers(1_000, 9_000)
    ...     seconds.learn([64, once, 4 * once, answers], 0.64 + 0.001 * answers)
    >>> seconds.prices.round(4)
    array([0.0084, 0.    , 0.    , 0.001 ])
    """

    # Faded sums of the products of a step's four quantities, its seconds and 1.
    gram: FloatArray = field(default_factory=lambda: np.zeros((6, 6)))

    def learn(self, quantities: ArrayLike, seconds: float) -> None:
        """Adds a step: its rollouts, prompt tokens once a group, prompt tokens in all rollouts, answer tokens."""
        row = np.append(np.asarray(quantities, dtype=np.float64), [seconds, 1.0])
        self.gram = _FADING * self.gram + np.outer(row, row)

    @property
    def prices(self) -> FloatArray:
        """Seconds of a rollout, of a prompt's token once a group and in each rollout, and of a token of an answer."""
        *sums, steps = self.gram[-1]
        if not steps or not min(sums) > 0:
            return _GUESS
        mean, took = np.array(sums[:4]) / steps, sums[4] / steps
        guess = _GUESS * mean / (_GUESS @ mean)
        # In shares of a mean step's seconds, so that neither units nor sizes matter.
        normal = self.gram[:4, :4] / np.outer(mean, mean) + _DOUBT * np.eye(4)
        shares = _at_least_0(normal, self.gram[:4, 4] / (mean * took) + _DOUBT * guess)
        return np.asarray(shares * took / mean)

    def __call__(self, prompt_P: FloatArray, answer_P: FloatArray) -> tuple[FloatArray, FloatArray]:
        """As a `Price`."""
        rollout, once, each, answer = self.prices
        return once * prompt_P, rollout + each * prompt_P + answer * answer_P

    def state_dict(self) -> dict[str, Any]:
        """What was learned."""
        return {"seconds": self.gram.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()`; raises `StateError`, and changes nothing, if it does not fit."""
        gram = check_array("seconds", state.get("seconds", []), "numbers")
        if gram.shape != self.gram.shape or not (np.isfinite(gram) & (gram >= 0)).all():
            raise StateError("The state holds no prices in seconds: another cost= saved it, or it is damaged.")
        self.gram = gram


def _at_least_0(normal: FloatArray, wanted: FloatArray) -> NDArray[np.float64]:
    """The x of at least 0 with the smallest x' normal x / 2 - wanted' x, for a positive definite matrix.

    >>> _at_least_0(np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([2.0, -1.0]))
    array([1., 0.])
    """
    x = np.maximum(np.linalg.solve(normal, wanted), 0.0)
    for _ in range(300):  # one coordinate after another, which converges
        for at in range(len(x)):
            x[at] = max(0.0, x[at] + (wanted[at] - normal[at] @ x) / normal[at, at])
    return np.asarray(x)

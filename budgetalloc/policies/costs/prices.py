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

_GUESS = np.array([1.0, 0.1, 0.1, 1.0])  # relative prices: a rollout, a prompt's token in a group and in a rollout, ...
_LEAST = 0.01  # the lowest share of a step's seconds, in units of the guessed share
_WINDOW, _FEWEST = 64, 5  # the steps that are remembered, as answers and machine change; those that a fit needs
_DOUBT = 0.1**0.5  # the guess counts as much as a tenth of a step
_USUAL, _STALLED = 0.2, 10.0  # in units of the median step: larger errors count ever less, longer steps are cut


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
    """The price of `cost="seconds"`: prices of tokens, fitted to the seconds of the last steps.

    A step's seconds are modelled as a sum over its rollouts, the tokens of its prompts once a group, the tokens of its
    prompts in every rollout, and the tokens of all answers. Prices start at a guess, in which an answer's token and a
    rollout cost 1 and a prompt's token 0.1. From 5 steps on they are fitted to the last 64 steps by a robust regression
    (Cauchy's loss), so that stalled steps have hardly any influence.

    Every price is positive and finite: it is at least 0.01 of the one that the guess gives for steps of this length.
    Where seconds do not follow tokens, because all rollouts wait for the longest, most of the cost goes to the rollout,
    and all prompts cost nearly the same. A fit that fails leaves the prices as they are.

    Args:
        steps: The last steps, shape (S, 5): rollouts, prompt tokens once a group, prompt tokens in all rollouts, answer
            tokens, and seconds; all positive.

    >>> seconds, rng = Seconds(), np.random.default_rng(0)
    >>> for step in range(50):  # each rollout 10 ms and each token of an answer 1 ms; prompts are free
    ...     once, answers = rng.integers(1_000, 2_000), rng.integers(1_000, 9_000)
    ...     stall = 10 if step % 20 == 19 else 1
    ...     seconds.learn([64, once, 4 * once, answers], stall * (0.64 + 0.001 * answers))
    >>> seconds.prices.round(4)
    array([0.009, 0.   , 0.   , 0.001])
    """

    steps: FloatArray = field(default_factory=lambda: np.empty((0, 5)))
    prices: FloatArray = field(init=False)
    """Seconds of a rollout, of a prompt's token once a group and in each rollout, and of an answer's token; (4,)."""
    at_bound: NDArray[np.bool_] = field(init=False)
    """Which of the prices are the lowest that they may be, because no seconds were seen to depend on them; (4,)."""

    def __post_init__(self) -> None:
        self.prices = _GUESS  # relative prices
        self.at_bound = np.zeros(4, dtype=bool)
        self._fit()

    def learn(self, quantities: ArrayLike, seconds: float) -> None:
        """Adds a step: its rollouts, prompt tokens once a group, prompt tokens in all rollouts, answer tokens.

        A step with a number that is not positive and finite says nothing, and is left out.
        """
        row = np.append(np.asarray(quantities, dtype=np.float64), seconds)
        if np.isfinite(row).all() and (row > 0).all():
            self.steps = np.vstack([self.steps, row])[-_WINDOW:]
            self._fit()

    def _fit(self) -> None:
        with np.errstate(all="ignore"):  # prices that are not finite are refused here
            fitted = _fitted(self.steps) if len(self.steps) else None
        if fitted is not None and (np.isfinite(fitted[0]) & (fitted[0] > 0)).all():
            self.prices, self.at_bound = fitted

    def __call__(self, prompt_P: FloatArray, answer_P: FloatArray) -> tuple[FloatArray, FloatArray]:
        """As a `Price`."""
        rollout, once, each, answer = self.prices
        return once * prompt_P, rollout + each * prompt_P + answer * answer_P

    def state_dict(self) -> dict[str, Any]:
        """What was learned."""
        return {"seconds": self.steps.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()`; raises `StateError`, and changes nothing, if it does not fit.

        A state of version 0.2 holds sums over its steps, of which the mean step is kept.
        """
        steps = check_array("seconds", state.get("seconds", []), "numbers")
        if steps.shape == (6, 6):  # of version 0.2; its last row: the sums of the four quantities, the seconds and 1
            steps = steps[-1:, :5] / steps[-1, 5] if steps[-1, 5] else np.empty((0, 5))
        if steps.ndim != 2 or steps.shape[1] != 5 or not (np.isfinite(steps) & (steps > 0)).all():
            raise StateError("The state holds no prices in seconds: another cost= saved it, or it is damaged.")
        restored = Seconds(steps[-_WINDOW:])
        self.steps, self.prices, self.at_bound = restored.steps, restored.prices, restored.at_bound


def _fitted(steps_S5: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]] | None:
    """The prices of the four quantities that fit the seconds of these steps best, and which are at their bound; None if
    the fit fails."""
    from scipy.optimize import least_squares  # deferred: slow to import

    # In shares of the median step's seconds, so that neither units nor sizes matter.
    *typical, took = np.median(steps_S5, axis=0)
    sizes_SK, took_S = steps_S5[:, :4] / typical, np.minimum(steps_S5[:, 4] / took, _STALLED)
    guess = _GUESS * typical / (_GUESS @ typical)
    bound = np.zeros(4, dtype=bool)
    if len(steps_S5) < _FEWEST:
        shares = guess * np.median(took_S / (sizes_SK @ guess))
    else:
        rows = np.vstack([sizes_SK, _DOUBT * np.eye(4)])
        wanted = np.append(took_S, _DOUBT * guess)
        try:
            fit = least_squares(
                lambda shares: rows @ shares - wanted,
                guess,
                jac=lambda shares: rows,
                bounds=(_LEAST * guess, np.inf),
                loss="cauchy",
                f_scale=_USUAL,
            )
        except ValueError:  # numbers that are not finite
            return None
        if not fit.success:
            return None
        shares, bound = fit.x, fit.x < 1.01 * _LEAST * guess
    return np.asarray(shares * took / typical), bound

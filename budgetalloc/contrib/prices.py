"""What rollouts cost: prices of tokens, and prices learned from the seconds of steps."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import StateError, check_array

Price = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]
"""(tokens of each prompt, expected tokens of its answers) -> (cost of the prompt, once a group;
cost of one rollout), shape (P,) each."""

# prices of a rollout, a prompt token once and in each rollout, an answer token
_GUESS = np.array([1.0, 0.1, 0.1, 1.0])
_LEAST = 0.01  # the lowest price, in units of the guessed price
_WINDOW, _FEWEST = 64, 5  # steps remembered, and steps that a fit needs
_DOUBT = 0.1**0.5  # the guess weighs as much as a tenth of a step
_USUAL, _STALLED = 0.2, 10.0  # in median steps: the scale of the loss; longer steps are clipped


def tokens(prompt_P: FloatArray, answer_P: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The price of `cost="tokens"`: the prompt's tokens count once a group, those of an answer in
    each rollout."""
    return prompt_P, answer_P


@dataclass(eq=False)
class Seconds:
    """The price of `cost="seconds"`: prices of rollouts and tokens, fitted to the seconds of the
    last steps.

    A step's seconds are modelled as a weighted sum of its rollouts, prompt tokens once a group,
    prompt tokens in all rollouts, and answer tokens. Prices start at a guess: 1 for a rollout and
    an answer token, 0.1 for a prompt token. From 5 steps on they are fitted to the last 64 steps by
    robust regression (Cauchy loss), in which stalled steps have little influence. A price is at
    least 0.01 of the guess, scaled to steps of this length. A fit that fails changes no price.

    Args:
        steps: The last steps, shape (S, 5): rollouts, prompt tokens once a group, prompt tokens in
            all rollouts, answer tokens, and seconds; all positive.

    >>> seconds, rng = Seconds(), np.random.default_rng(0)
    >>> # each rollout 10 ms and each token of an answer 1 ms; prompts are free
    >>> for step in range(50):
    ...     once, answers = rng.integers(1_000, 2_000), rng.integers(1_000, 9_000)
    ...     stall = 10 if step % 20 == 19 else 1
    ...     seconds.learn([64, once, 4 * once, answers], stall * (0.64 + 0.001 * answers))
    >>> seconds.prices.round(4)
    array([0.009, 0.   , 0.   , 0.001])
    """

    steps: FloatArray = field(default_factory=lambda: np.empty((0, 5)))
    prices: FloatArray = field(init=False)
    """Seconds of a rollout, a prompt token once a group, a prompt token in each rollout, and an
    answer token, (4,)."""
    at_bound: NDArray[np.bool_] = field(init=False)
    """Which prices are at their lower bound, because the seconds do not depend on their quantity,
    (4,)."""

    def __post_init__(self) -> None:
        self.prices = _GUESS
        self.at_bound = np.zeros(4, dtype=bool)
        self._fit()

    def learn(self, quantities: ArrayLike, seconds: float) -> None:
        """Adds a step: the first four numbers of a row of `steps`, and its seconds.

        A step with a number that is not positive and finite is ignored.
        """
        row = np.append(np.asarray(quantities, dtype=np.float64), seconds)
        if np.isfinite(row).all() and (row > 0).all():
            self.steps = np.vstack([self.steps, row])[-_WINDOW:]
            self._fit()

    def _fit(self) -> None:
        with np.errstate(all="ignore"):  # a fit without finite prices is rejected below
            fitted = _fitted(self.steps) if len(self.steps) else None
        if fitted is not None and (np.isfinite(fitted[0]) & (fitted[0] > 0)).all():
            self.prices, self.at_bound = fitted

    def __call__(self, prompt_P: FloatArray, answer_P: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Costs of prompts and rollouts: see `Price`."""
        rollout, once, each, answer = self.prices
        return once * prompt_P, rollout + each * prompt_P + answer * answer_P

    def state_dict(self) -> dict[str, Any]:
        """The remembered steps."""
        return {"seconds": self.steps.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()`; raises `StateError`, and changes nothing, if it does not fit."""
        steps = check_array("seconds", state.get("seconds", []), "numbers")
        if steps.ndim != 2 or steps.shape[1] != 5 or not (np.isfinite(steps) & (steps > 0)).all():
            raise StateError(
                "The state holds no prices in seconds: another cost= saved it, or it is damaged."
            )
        restored = Seconds(steps[-_WINDOW:])
        self.steps, self.prices, self.at_bound = restored.steps, restored.prices, restored.at_bound


def _fitted(steps_S5: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]] | None:
    """The prices that fit the seconds of these steps best, and which are at their bound; None if
    the fit fails."""
    from scipy.optimize import least_squares  # deferred: slow to import

    # The fit is in shares of the median step: it depends neither on units nor on sizes.
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
        except ValueError:  # a residual is not finite
            return None
        if not fit.success:
            return None
        shares, bound = fit.x, fit.x < 1.01 * _LEAST * guess
    return np.asarray(shares * took / typical), bound

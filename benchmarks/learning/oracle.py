"""What exact success rates would give: the limit of any belief.

Before each step, the exact success rate of every prompt is computed with the model that is trained (of 1,024 drawn
prompts if the pool has more than 4,096). The rule of `sampled` then draws single rollouts in proportion to the root
of a weight of that rate, and the baseline is the rate itself. No real run can do that.

Damaged oracles tell which error of a belief costs how much: rates of 10 steps before, in the choice of prompts, in the
baseline or in both, or rates with noise that is drawn anew at each step.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from mixes import Mix
from numpy.typing import NDArray
from scipy.special import expit, logit

import budgetalloc as ba
from budgetalloc import policies
from budgetalloc.cli.testbed.heldout import probability

WEIGHTS = {"oracle": (1, 2), "oracle_13": (1, 3), "oracle_02": (0, 2)}
"""Name of each row: i and j of the weight p^i (1-p)^j."""
DAMAGED: dict[str, dict[str, float]] = {
    "oracle_late": {"choice": 10, "baseline": 10},
    "oracle_late_choice": {"choice": 10},
    "oracle_late_choice_5": {"choice": 5},
    "oracle_late_choice_2": {"choice": 2},
    "oracle_late_baseline": {"baseline": 10},
    "oracle_noisy": {"noise": 1.0},
}
"""Name of each row: the age, in steps, of the rates for the choice of prompts and for the baseline, or the standard
deviation of the noise of their log-odds."""
NAMES = (*WEIGHTS, *DAMAGED)
_CANDIDATES = 1024
_BATCH = 512
_CERTAIN = 1e9  # mass of a belief that is exact
_RAREST = 1e-4


class Exact(ba.BetaEstimator):
    """An estimator whose beliefs are the exact rates of the model at the current step."""

    def __init__(
        self,
        trainer: Any,
        mix: Mix,
        rows: Sequence[dict[str, Any]],
        seed: int,
        choice: float = 0,
        baseline: float = 0,
        noise: float = 0,
    ) -> None:
        super().__init__()
        self.trainer, self.mix, self.seed, self.noise = trainer, mix, seed, noise
        self.age_of_choice, self.age_of_baseline = int(choice), int(baseline)
        self.text = {int(row["prompt_id"]): row["prompt"] for row in rows}
        self._at = -1
        self._computed: list[dict[Any, float]] = []  # the newest first

    def belief(self, ids_P: Iterable[Any]) -> ba.Beta:
        return self._belief(list(ids_P), self.age_of_choice)

    def baseline_belief(self, ids_G: Any, group_R: Any, success_R: Any, prior_share: float = 1.0) -> ba.Beta:
        return self._belief(ids_G, self.age_of_baseline).take(group_R)

    def _belief(self, ids: list[Any], age: int) -> ba.Beta:
        if self._at != self.step:
            rates = self.rates(list(self.text))
            if self.noise:
                rng = np.random.default_rng([self.seed, self.step, 1])
                odds_P = logit(np.clip(list(rates.values()), 1e-9, 1 - 1e-9))
                rates = dict(zip(rates, expit(odds_P + self.noise * rng.standard_normal(len(rates))), strict=True))
            self._computed = [rates, *self._computed][: 1 + max(self.age_of_choice, self.age_of_baseline)]
            self._at = self.step
        rates = self._computed[min(age, len(self._computed) - 1)]
        rate_P = np.array([rates.get(x, 1.0) for x in ids])  # 1.0: not a candidate, the weight is 0
        rate_P = np.clip(rate_P, _RAREST, 1 - 1e-9)
        return ba.Beta(_CERTAIN * rate_P, _CERTAIN * (1 - rate_P))

    def cold(self, ids_P: Iterable[Any]) -> NDArray[np.bool_]:
        return np.zeros(len(list(ids_P)), dtype=np.bool_)

    def rates(self, ids: list[int]) -> dict[Any, float]:
        """The exact success rate of each of these prompts with the present model; of 1,024 of them if they are many."""
        if len(ids) > _CANDIDATES * 4:
            rng = np.random.default_rng([self.seed, self.step])
            ids = [ids[at] for at in rng.choice(len(ids), _CANDIDATES, replace=False)]
        language = self.mix.language
        coins = [x for x in ids if language.is_trap(x)]
        taught = [x for x in ids if not language.is_trap(x)]
        model, tokenizer = self.trainer.accelerator.unwrap_model(self.trainer.model), self.trainer.processing_class
        rates: dict[Any, float] = dict.fromkeys(coins, 0.5)
        expected = self.mix.grading.expected if self.mix.grading else lambda right: right
        if expected is None:
            raise ValueError("The expected reward of this mix is not a function of the right answer's probability.")
        for start in range(0, len(taught), _BATCH):
            part = taught[start : start + _BATCH]
            texts = [self.text[x] for x in part]
            right = probability(model, tokenizer, texts, [language.answer(text) for text in texts])
            rates |= dict(zip(part, map(expected, right), strict=True))
        return rates


def policy(name: str, trainer: Any, mix: Mix, rows: Sequence[dict[str, Any]], seed: int) -> ba.Policy:
    """The oracle's policy of this name."""
    plain = policies.sampled(power=WEIGHTS.get(name, (1, 2)), draw=False, groups=1, seed=seed)
    exact = Exact(trainer, mix, rows, seed, **DAMAGED.get(name, {}))
    return replace(plain, name=f"{name}(seed={seed})", estimator=exact)

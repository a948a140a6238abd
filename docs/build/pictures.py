"""Draws the pictures of docs/how.md with the package's own functions: `python docs/build/pictures.py`."""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from scipy.stats import beta

import budgetalloc as ba

FOLDER = Path(__file__).resolve().parents[1] / "pictures"
STYLE = {"svg.hashsalt": "budgetalloc", "svg.fonttype": "none", "font.size": 11}
STYLE |= {"axes.spines.top": False, "axes.spines.right": False}


def belief(axes: Axes) -> None:
    """The belief about a prompt: never seen, after one and after eight of eight rollouts, and after 50 steps."""
    estimator = ba.BetaEstimator(prior=(0.3, 0.3), idle=0.98)
    stages = [("never seen", [], 0), ("1 of 4 passed", [1, 0, 0, 0], 1), ("2 of 12 passed", [1] + [0] * 7, 1)]
    rate = np.linspace(0.005, 0.995, 199)
    for label, rewards, steps in [*stages, ("50 steps later", [], 50)]:
        estimator.observe(["prompt"] * len(rewards), rewards)
        for _ in range(steps):
            estimator.tick()
        now = estimator.belief(["prompt"])
        axes.plot(rate, beta.pdf(rate, now.alpha_P[0], now.beta_P[0]), label=f"{label}: mean {now.mean[0]:.2f}")
    axes.set(xlabel="success rate of the prompt", ylabel="density", ylim=(0, 5), xlim=(0, 1))
    axes.legend(frameon=False)


def value(axes: Axes) -> None:
    """The chance of a mixed group against its size."""
    counts_N = np.arange(0, 33)
    rates_P = np.array([0.5, 0.2, 0.05, 0.01])
    for rate, values_N in zip(rates_P, ba.mixed_group(ba.Point(rates_P), counts_N), strict=True):
        axes.plot(counts_N, values_N, label=f"success rate {rate:g}")
    axes.set(xlabel="rollouts of the prompt", ylabel="chance of a mixed group", xlim=(0, 32), ylim=(0, 1.02))
    axes.legend(frameon=False, loc="center right")


def solver(axes: Axes) -> None:
    """What 128 rollouts buy for 33 prompts of known rates: by the knapsack, and in proportion to a weight."""
    rates_P = np.linspace(0, 1, 33)
    budget = ba.Budget(rollouts=128, floor=0)
    single = ba.Budget(rollouts=128, floor=0, min_group=1)
    values_PN = ba.mixed_group(ba.Point(rates_P), budget.grid())
    axes.step(rates_P, ba.greedy(values_PN, None, budget), where="mid", label="greedy on the chance of a mixed group")
    weights_P = np.sqrt(rates_P * (1 - rates_P) ** 2)
    axes.step(rates_P, ba.proportional(weights_P, None, single), where="mid", label="in proportion to sqrt(p (1-p)²)")
    axes.set(xlabel="success rate p of the prompt", ylabel="rollouts", xlim=(0, 1))
    axes.legend(frameon=False)


def baseline(axes: Axes) -> None:
    """The advantage of one rollout that passed, and of one that failed, against what was believed of its prompt."""
    mean_R = np.linspace(0.01, 0.99, 99)
    before_R = ba.Beta(20 * mean_R, 20 * (1 - mean_R))
    for reward, label in ((1.0, "passed"), (0.0, "failed")):
        rewards_R, ids_R = np.full(len(mean_R), reward), range(len(mean_R))
        plain, scaled = (
            ba.group_advantages(rewards_R, ids_R, "posterior", scale, belief_R=before_R) for scale in ("none", "group")
        )
        line = axes.plot(mean_R, plain, label=f"{label}, reward minus baseline")[0]
        axes.plot(mean_R, scaled, "--", color=line.get_color(), label=f"{label}, divided by the deviation")
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set(xlabel="mean of the belief before the step", ylabel="advantage of a single rollout", xlim=(0, 1))
    axes.legend(frameon=False, fontsize=9)


PICTURES = (belief, value, solver, baseline)


def draw(folder: Path) -> None:
    """Writes every picture as an SVG into the folder."""
    folder.mkdir(exist_ok=True)
    for picture in PICTURES:
        with plt.rc_context(STYLE):
            figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
            picture(axes)
            figure.savefig(folder / f"{picture.__name__}.svg", metadata={"Date": None})
            plt.close(figure)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)

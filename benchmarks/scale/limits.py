"""What the best baseline and the best choice of prompts could give, on a model that stands still.

    python benchmarks/scale/limits.py runs/scale/gradients_0.npz        # a file that `gradients.py sample` wrote

x is a rollout's gradient times its advantage with the prompt's exact rate as baseline, (r - p) g, and J = E[x] the
gradient of mean success. W is the variance of x within a prompt, Bt that between prompts. The noise scale is
Bn = (W + Bt) / |J|^2: a step of B rollouts makes 1 / (1 + Bn / B) of the progress of an exact gradient to first order
(arXiv 1812.06162), so beyond Bn rollouts a step further ones bring little.

The other lines are rollouts of groups of 8 (leave-one-out mean as baseline) that one rollout is worth, to first order:
E[x]^2 / E[x^2], relative. Neyman's choice (arXiv 1803.00942) draws prompts in proportion to the root of E[x^2] and
weighs them back, so the objective stays (`neyman_factors` says how much of that is left if the choice is made by other
samples, or without a backward pass). The oracle weighs each prompt by what its gradient does for the others.
Sums over samples leave out a sample's product with itself, and the oracle's weights come from the other half of the
samples, so that noise does not count as signal.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gradients import World  # beside this file

GROUPS = (2, 4, 8)


class Moments:
    """Means of products of single-rollout gradients, from `World`.

    Attributes:
        square_P: E[x^2] of each prompt. own_P: |E[x]|^2 of each prompt.
        others_P: <E[x] of a prompt, E[x] of the other prompts>.
    """

    def __init__(self, world: World, samples: Any = None) -> None:
        prompts, of_each = world.rewards_PS.shape
        samples = np.arange(of_each) if samples is None else samples
        at_PS = np.arange(prompts)[:, None] * of_each + samples
        rewards_PS = world.rewards_PS[:, samples]
        count = len(samples)
        # The rate of the other samples; their gradients are centred by `World`.
        self.advantages_PS = (rewards_PS - rewards_PS.mean(1, keepdims=True)) * count / (count - 1)
        at_R, weights_R = at_PS.ravel(), self.advantages_PS.ravel()
        products_RR = world.products_RR[np.ix_(at_R, at_R)]
        self.scores_PS = np.diag(products_RR).reshape(prompts, count)
        weighted_RR = products_RR * weights_R[:, None] * weights_R
        blocks_PP = weighted_RR.reshape(prompts, count, prompts, count).sum(axis=(1, 3))
        self.square_P = (self.advantages_PS**2 * self.scores_PS).mean(1)
        self.own_P = (np.diag(blocks_PP) - count * self.square_P) / (count * (count - 1))
        self.others_P = (blocks_PP.sum(1) - np.diag(blocks_PP)) / count**2 / (prompts - 1)

    @property
    def signal(self) -> tuple[float, float]:
        """|J|^2 from products of different prompts, and its standard error (of a mean over pairs)."""
        return float(self.others_P.mean()), 2 * float(self.others_P.std(ddof=1)) / len(self.others_P) ** 0.5


def group_square(world: World, moments: Moments, size: int) -> float:
    """E[g^2] / n with g the gradient of a group of n with the leave-one-out mean as baseline.

    A baseline of n - 1 other rollouts adds v / (n - 1) of the squared score. The rollouts of a group share their prompt
    and their baselines share rollouts, which adds n - 1 and 1 / (n - 1) times |E[x]|^2.
    """
    rates_P = world.rewards_PS.mean(1)
    added_P = rates_P * (1 - rates_P) / (size - 1) * moments.scores_PS.mean(1)
    shared = size - 1 + 1 / (size - 1)
    return float((moments.square_P + added_P + shared * moments.own_P).mean())


def limits(world: World) -> Iterator[tuple[str, str]]:
    """Names and figures, in the page's order. What needs |J|^2 is a bound, or empty, where |J|^2 is mostly noise."""
    moments = Moments(world)
    signal, error = moments.signal
    seen = signal > 2 * error
    single, own = float(moments.square_P.mean()), float(moments.own_P.mean())
    variance = single - max(signal, 0.0)
    yield "share of the variance within prompts", f"{(single - own) / variance:.2f}"
    least = variance / (signal + 2 * error)
    yield (
        "noise scale Bn, rollouts",
        f"{variance / signal:.0f} (at least {least:.0f})" if seen else f"at least {least:.0f}",
    )
    base = group_square(world, moments, 8)
    for size in GROUPS:
        yield f"groups of {size}", f"{base / group_square(world, moments, size):.2f}"
    yield "singles, exact rate", f"{base / single:.2f}"
    yield "singles, Neyman's choice", f"{base / float(np.sqrt(moments.square_P).mean() ** 2):.2f}"
    halves = [Moments(world, np.arange(start, world.rewards_PS.shape[1], 2)) for start in (0, 1)]
    worth = []
    for known, other in (halves, halves[::-1]):
        weights_P = np.maximum(known.others_P, 0) / np.maximum(known.square_P, np.mean(known.square_P) / 20)
        worth.append(np.mean(weights_P * other.others_P) ** 2 / np.mean(weights_P**2 * other.square_P))
    yield (
        "singles, the oracle's weights of prompts",
        f"{float(np.mean(worth)) / (signal**2 / base):.1f}" if seen else "",
    )


def neyman_factors(world: World, past: World | None = None) -> Iterator[tuple[str, str]]:
    """How many times fewer rollouts Neyman's choice needs than a choice of all prompts alike, if half of the samples
    choose and the other half judges: so it can be below 1.

    Prompts are drawn in proportion to s and weighed back, which makes E[x^2] the mean of s times that of E[x^2] / s.
    Each s^2 is an estimate of E[x^2] from the half that chooses, with a fifth of their mean added; `past` is a world of
    the same prompts, whose samples choose in its place.
    """
    samples = world.rewards_PS.shape[1]
    parts = [np.arange(start, samples, 2) for start in (0, 1)]
    found: dict[str, list[float]] = {}
    for known, other in (parts, parts[::-1]):
        judged_P = Moments(world, other).square_P
        chosen = past or world
        rewards_PS = chosen.rewards_PS[:, known]
        rates_P = (rewards_PS.sum(1) + 0.5) / (len(known) + 1)
        moments, uncertain_P = Moments(chosen, known), rates_P * (1 - rates_P)
        estimates = {
            "its E[x^2]": moments.square_P,
            "its rate": uncertain_P,
            "its rate and gradients": uncertain_P * moments.scores_PS.mean(1),
        }
        if chosen.bounds_PS is not None:
            estimates["its rate and the head's bound"] = uncertain_P * chosen.bounds_PS[:, known].mean(1)
            estimates["its rewards and the head's bound"] = (
                moments.advantages_PS**2 * chosen.bounds_PS[:, known]
            ).mean(1)
        for name, square_P in estimates.items():
            s_P = np.sqrt(square_P + square_P.mean() / 5)
            found.setdefault(name, []).append(judged_P.mean() / (s_P.mean() * np.mean(judged_P / s_P)))
    for name, both in found.items():
        yield f"Neyman's choice by {name}", f"{float(np.mean(both)):.2f}"


def main(argv: Sequence[str]) -> None:
    worlds = [World(**np.load(path)) for path in argv]
    columns = [dict(limits(world)) | dict(neyman_factors(world)) for world in worlds]
    if len(worlds) > 1 and all(np.array_equal(worlds[0].kinds_P, world.kinds_P) for world in worlds):
        for world, column in zip(worlds, columns, strict=True):
            past = neyman_factors(world, worlds[0]) if world is not worlds[0] else ()
            column |= {f"{name}, chosen at the first": figure for name, figure in past}
    print(f"| | {' | '.join(Path(path).stem for path in argv)} |")
    print("|---" * (1 + len(argv)) + "|")
    for name in dict.fromkeys(name for column in columns for name in column):
        print(f"| {name} | {' | '.join(column.get(name, '') for column in columns)} |")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Draws every picture of the docs, from the data in benchmarks/ and with the package's functions: `make pictures`.

Pictures of the evidence show the mean over the table's seeds with its 95 % interval by Student's t. Rates, and the
group size of uniform, are those of the tables. The three pictures of the front page are those of the mixes at which
`adaptive()` gains least, the median and most.
"""

import sys
from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import beta, binom

import budgetalloc as ba
from budgetalloc.offline.intervals import interval
from budgetalloc.policies.composition import least_groups

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/pictures"
sys.path[:0] = [str(ROOT / "benchmarks/learning"), str(ROOT / "benchmarks/scale")]
import results as scale  # noqa: E402
from equal_success import coverage_at, shared_levels  # noqa: E402
from harm import SHAPES_TUNED  # noqa: E402
from mixes import SHAPES  # noqa: E402
from run import read  # noqa: E402
from table import Row, best_uniform, of_table, on_grid  # noqa: E402
from with_features import compared  # noqa: E402

STYLE = {"svg.hashsalt": "budgetalloc", "svg.fonttype": "none", "font.size": 10, "axes.titlesize": 10}
STYLE |= {"figure.constrained_layout.w_pad": 0.08}  # browsers' letters are wider
STYLE |= {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False, "legend.fontsize": 9}
GREY, BLUE, ORANGE = "#6b6b6b", "#0173b2", "#d55e00"
POLICIES = {"uniform": ("GRPO, best group size", GREY), "adaptive": ("adaptive()", BLUE)}
POLICIES |= {"adaptive_3": ("adaptive(rounds=3)", ORANGE)}
Runs = dict[str, NDArray[np.float64]]  # of each policy a row a seed, a column a point of the curve


# The evidence.


@cache
def runs_of(mix: str, file: str = "rounds.jsonl") -> dict[str, list[Row]]:
    """The runs of uniform at its best group size, of the default and in rounds, by seed."""
    files = "results.jsonl", "table.jsonl", file
    rows = [run for name in files for run in read(ROOT / "benchmarks/learning" / name)]
    runs = sorted(of_table(rows, mix), key=lambda run: run["seed"])
    names = {"uniform": best_uniform(rows, mix), "adaptive": "adaptive", "adaptive_3": "adaptive_3"}
    return {name: [run for run in runs if run["policy"] == at] for name, at in names.items()}


@cache
def of_mix(mix: str, file: str = "rounds.jsonl", measure: str = "expected") -> tuple[NDArray[np.float64], Runs]:
    """The rollouts of the points, and the curves of `runs_of`."""
    found = runs_of(mix, file)
    rollouts = np.array(found["uniform"][0]["rollouts"], dtype=float)
    curves = {
        name: np.array([np.interp(rollouts, run["rollouts"], run[measure]) for run in of])
        for name, of in found.items()
        if of
    }
    return rollouts, curves


@cache
def gains(name: str = "adaptive", measure: str = "expected") -> Runs:
    """The differences from uniform by mix, one a seed: success over the run, or coverage at its end."""
    mixes = dict.fromkeys(run["mix"] for run in read(ROOT / "benchmarks/learning/rounds.jsonl"))
    score = (lambda of_SG: of_SG.mean(axis=1)) if measure == "expected" else (lambda of_SG: of_SG[:, -1])
    curves = {mix: of_mix(mix, measure=measure)[1] for mix in mixes}
    return {mix: score(of[name]) - score(of["uniform"]) for mix, of in curves.items()}


@cache
def ranked() -> list[str]:
    """The mixes by rising gain of mean success."""
    return sorted(gains(), key=lambda mix: float(gains()[mix].mean()))


def lines(axes: Axes, rollouts: NDArray[np.float64], curves: Runs, names: dict[str, tuple[str, str]]) -> None:
    """The mean curve of each policy and its interval."""
    for name, (label, color) in names.items():
        if name in curves:
            line(axes, rollouts / 1000, curves[name], label, color)
    axes.grid(alpha=0.3)


def line(axes: Axes, x: NDArray[np.float64], curves: NDArray[np.float64], label: str, color: str) -> None:
    """The mean of these curves and its interval."""
    low, high = np.array([interval(of_S) for of_S in curves.T]).T
    axes.plot(x, curves.mean(axis=0), color=color, label=label)
    axes.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)


def above(figure: Figure) -> None:
    """One legend for all panels."""
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)


def front(figure: Figure, rank: int, which: str) -> None:
    """Success on one mix, and the level at which uniform ends."""
    mix, axes = ranked()[rank], figure.subplots()
    lines(axes, *of_mix(mix), POLICIES)
    axes.axhline(of_mix(mix)[1]["uniform"][:, -1].mean(), color=GREY, linestyle=":", linewidth=1)
    axes.set(title=f"{mix}, {which} gain", xlabel="thousand rollouts", ylabel="held-out success", ylim=(0, 1))
    if rank == 0:
        axes.legend(loc="lower right")


def twelve(figure: Figure, draw: Callable[[Axes, str], None], x: str, y: str, sharex: bool) -> None:
    """All mixes, the smallest gain first."""
    panels = figure.subplots(4, 3, sharex=sharex)
    for axes, mix in zip(panels.flat, ranked(), strict=True):
        draw(axes, mix)
        low, high = axes.get_ylim()
        more = max(0.1 - (high - low), 0) / 2  # no panel magnifies noise
        axes.set(title=mix, ylim=(low - more, high + more))
        axes.grid(alpha=0.3)
    for axes in panels[-1]:
        axes.set_xlabel(x)
    for axes in panels[:, 0]:
        axes.set_ylabel(y)
    above(figure)


def shapes(figure: Figure) -> None:
    """Success against rollouts in pools of other shapes, at the learning rate of uniform groups."""
    rows = [row for row in read(ROOT / "benchmarks/learning/table.jsonl") if row["mix"] in SHAPES]
    names = {"uniform4": ("GRPO, groups of 4", GREY), "adaptive": ("adaptive()", BLUE)}
    found = [shape for shape in SHAPES if {name for name in names if of_shape(rows, shape, name)} == names.keys()]
    for axes, shape in zip(figure.subplots(1, len(found), sharey=True), found, strict=True):
        runs = {name: of_shape(rows, shape, name) for name in names}
        grid = np.array(runs["uniform4"][0]["rollouts"], dtype=float)
        lines(axes, grid, {name: np.array([on_grid(run, grid) for run in of]) for name, of in runs.items()}, names)
        axes.set(title=shape, xlabel="thousand rollouts", ylim=(0, 1))
    figure.axes[0].set_ylabel("held-out success")
    figure.axes[0].legend()


def of_shape(rows: list[Row], shape: str, name: str) -> list[Row]:
    """The runs of a policy on a shape, on the table's seeds."""
    return [run for run in rows if (run["mix"], run["policy"], run["rate"]) == (shape, name, SHAPES_TUNED[1])]


def success(axes: Axes, mix: str) -> None:
    """Success against rollouts."""
    lines(axes, *of_mix(mix), POLICIES)


def coverage(axes: Axes, mix: str) -> None:
    """pass@64 when success first reaches a level, over the levels that all runs of a policy reach."""
    for name, runs in runs_of(mix).items():
        level_L = shared_levels([run["expected"] for run in runs])
        of_SL = np.array([coverage_at(level_L, run["expected"], run["pass64"]) for run in runs])
        line(axes, level_L, of_SL, *POLICIES[name])


def dots(axes: Axes, found: dict[tuple[str, str], Runs], title: str) -> None:
    """The mean difference on each mix and its interval, for each label and colour."""
    for at, ((label, color), of_mixes) in enumerate(found.items()):
        places = np.arange(len(ranked())) + 0.25 * ((len(found) - 1) / 2 - at)
        axes.hlines(places, *np.array([interval(of_mixes[mix]) for mix in ranked()]).T, color=color)
        means = [of_mixes[mix].mean() for mix in ranked()]
        axes.plot(means, places, "o", color=color, markersize=4, label=label)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set(title=title, yticks=range(len(ranked())), yticklabels=ranked())
    axes.grid(alpha=0.3)


def differences(figure: Figure) -> None:
    """The difference from uniform on each mix, of success over the run and of coverage at the end."""
    titles = {"expected": "mean success minus GRPO's", "pass64": "pass@64 at the end minus GRPO's"}
    for axes, (measure, title) in zip(figure.subplots(1, 2, sharey=True), titles.items(), strict=True):
        dots(axes, {POLICIES[name]: gains(name, measure) for name in ("adaptive", "adaptive_3")}, title)
    figure.axes[0].legend(loc="lower right")


def parts(figure: Figure) -> None:
    """The choice of prompts alone, single rollouts of random prompts with the belief as baseline, and both."""
    folder, names = ROOT / "benchmarks/learning", ["own_groups", "equal_singles"]
    found = dict(compared(read(folder / "results.jsonl"), read(folder / "ablation.jsonl"), names))
    labels = [("choice alone", ORANGE), ("baseline alone", GREY), ("both: sampled(groups=2)", BLUE)]
    of_parts = {
        label: {mix: runs[part][0] - runs[0][0] for mix, runs in found.items()}
        for label, part in zip(labels, (2, 3, 1), strict=True)
    }
    axes = figure.subplots()
    dots(axes, of_parts, "mean success minus GRPO's")
    axes.legend(loc="lower right")


def sizes(figure: Figure) -> None:
    """One language at four sizes."""
    mixes = {"u_shape": "0.34 M parameters", "u_shape_1M": "1 M", "u_shape_3M": "3 M", "u_shape_10M": "10 M"}
    for axes, (mix, title) in zip(figure.subplots(1, 4, sharey=True), mixes.items(), strict=True):
        lines(axes, *of_mix(mix, "sizes.jsonl"), POLICIES)
        axes.set(title=title, xlabel="thousand rollouts")
    figure.axes[0].set_ylabel("held-out success")
    above(figure)


def larger(figure: Figure) -> None:
    """SmolLM2-135M: success and coverage for both pools."""
    runs = scale.read(ROOT / "benchmarks/scale/results.jsonl")
    for column, (pool, title) in zip(
        figure.subplots(2, 2, sharex=True, sharey="row").T,
        {"ten": "prompts seen ten times", "once": "prompts seen once"}.items(),
        strict=True,
    ):
        found = scale.of_table(runs, "short", pool)
        found["uniform"] = found[scale.best_uniform(found)]
        rollouts = np.array([point["rollouts"] for point in found["uniform"][0]])
        for axes, measure in zip(column, ("success", "pass8"), strict=True):
            curves = {name: np.array([[x[measure] for x in run] for run in of.values()]) for name, of in found.items()}
            lines(axes, rollouts, curves, POLICIES)
        column[0].set_title(title)
        column[1].set_xlabel("thousand rollouts")
    for axes, label in zip(figure.axes[::2], ("held-out success", "pass@8"), strict=True):
        axes.set_ylabel(label)
    above(figure)


def peer(figure: Figure) -> None:
    """The two seeds of three programs, each at the rate that ends highest."""
    axes, rows = figure.subplots(), read(ROOT / "benchmarks/peer/results.jsonl")
    for (arm, label), color in zip(
        {"GRPO": "GRPO", "trl-cgrpo, grid to 8": "trl-cgrpo, best arm", "budgetalloc": "sampled(groups=2)"}.items(),
        (GREY, ORANGE, BLUE),
        strict=True,
    ):
        by_rate = defaultdict(list)
        for run in rows:
            if run["arm"] == arm:
                by_rate[run["rate"]].append(run)
        for run in max(by_rate.values(), key=lambda of: np.mean([run["success"][-1] for run in of])):
            axes.plot(np.array(run["generated"]) / 1000, run["success"], color=color, label=label)
            label = None
    axes.set(xlabel="thousand rollouts, with those of the calibration", ylabel="held-out success", xlim=(0, 38.4))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")


def speed(figure: Figure) -> None:
    """What the page about speed prints: the time of a decision by the size of the pool, and of a rollout in vLLM."""
    page = (ROOT / "benchmarks/README.md").read_text(encoding="utf-8").replace(",", "")
    (left, right), rows = figure.subplots(1, 2), [line.split() for line in page.splitlines()]
    decided = [[float(x) for x in (row[0], *row[2:4])] for row in rows if row[1:2] == ["adaptive"] and len(row) == 10]
    prompts, of_list, of_pool = np.array(decided).T
    left.loglog(prompts, of_list, "o-", color=GREY, label="a list of ids")
    left.loglog(prompts, of_pool, "o-", color=BLUE, label="a Pool")
    left.set(title="adaptive(), 8192 rollouts", xlabel="prompts", ylabel="milliseconds of a decision")
    left.legend()
    took = [row for row in rows if row[:1] == ["on"] and len(row) == 8 and row[2] == "16"]  # answers of 16 tokens
    for place, row in enumerate(took):
        bar = right.barh(place, float(row[4]), color=BLUE if row[3] == "1" else GREY)
        right.bar_label(bar, padding=3)
    names = [f"{prompt} tokens, {'single' if size == '1' else f'group of {size}'}" for _, prompt, _, size, *_ in took]
    right.set(yticks=range(len(took)), yticklabels=names, xlim=(0, 80))
    right.set(title="vLLM, prefix caching", xlabel="milliseconds of a rollout")


# The ideas of how.md.


def belief(figure: Figure) -> None:
    """The belief about a prompt: never seen, after one and after two visits, and 50 steps later."""
    estimator, axes = ba.BetaEstimator(prior=(0.3, 0.3), idle=0.98), figure.subplots()
    stages = [("never seen", [], 0), ("1 of 4 passed", [1, 0, 0, 0], 1), ("2 of 12 passed", [1] + [0] * 7, 1)]
    rate = np.linspace(0.005, 0.995, 199)
    for label, rewards, steps in [*stages, ("50 steps later", [], 50)]:
        estimator.observe(["prompt"] * len(rewards), rewards)
        for _ in range(steps):
            estimator.tick()
        now = estimator.belief(["prompt"])
        axes.plot(rate, beta.pdf(rate, now.alpha_P[0], now.beta_P[0]), label=f"{label}: mean {now.mean[0]:.2f}")
    axes.set(xlabel="pass rate of the prompt", ylabel="density", ylim=(0, 5), xlim=(0, 1))
    axes.legend(loc="upper center")


def value(figure: Figure) -> None:
    """The chance of a mixed group against its size."""
    counts_N, axes = np.arange(0, 33), figure.subplots()
    rates_P = np.array([0.5, 0.2, 0.05, 0.01])
    for rate, values_N in zip(rates_P, ba.mixed_group(ba.Point(rates_P), counts_N), strict=True):
        axes.plot(counts_N, values_N, label=f"pass rate {rate:g}")
    axes.set(xlabel="rollouts of the prompt", ylabel="chance of a mixed group", xlim=(0, 32), ylim=(0, 1.02))
    axes.legend(loc="center right")


def solver(figure: Figure) -> None:
    """What 128 rollouts buy for 33 prompts of known rates: by the knapsack, and in proportion to a weight."""
    rates_P, axes = np.linspace(0, 1, 33), figure.subplots()
    budget = ba.Budget(rollouts=128, floor=0)
    values_PN = ba.mixed_group(ba.Point(rates_P), budget.grid())
    axes.step(rates_P, ba.greedy(values_PN, None, budget), where="mid", label="greedy on the chance of a mixed group")
    weights_P, single = np.sqrt(rates_P * (1 - rates_P) ** 2), ba.Budget(rollouts=128, floor=0, min_group=1)
    axes.step(rates_P, ba.proportional(weights_P, None, single), where="mid", label="in proportion to sqrt(p (1-p)²)")
    axes.set(xlabel="pass rate p of the prompt", ylabel="rollouts", xlim=(0, 1))
    axes.legend()


def met(rates_P: NDArray[np.float64], rng: np.random.Generator, steps: int = 300) -> NDArray[np.float64]:
    """The mean rollouts of each prompt in steps of `adaptive()`, relative to a mean of 2, after the first 100."""
    policy, ids = ba.adaptive(seed=0), range(len(rates_P))
    budget, counts = ba.Budget(rollouts=len(ids) // 4, floor=0, min_group=1), np.zeros((steps, len(ids)))
    for counts_P in counts:
        counts_P[:] = policy.allocate(ids, budget)
        rows = np.repeat(ids, counts_P.astype(int))
        policy.observe(rows, (rng.random(len(rows)) < rates_P[rows]) * 1.0)
    return 8 * counts[100:].mean(axis=0)


def spent(policy: ba.Policy, rates_P: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """The rollouts of each prompt in each round of a step, after 16 rollouts of each; shape (rounds, P)."""
    ids, rounds = range(len(rates_P)), []
    policy.observe(np.repeat(ids, 16), np.concatenate([np.arange(16) < round(16 * rate) for rate in rates_P]) * 1.0)
    step = policy.begin(ids, ba.Budget(rollouts=2 * len(ids), floor=0, min_group=1))
    while (counts_P := step.request()).any():
        rounds.append(counts_P)
        rows = np.repeat(ids, counts_P)
        step.observe(rows, (rng.random(len(rows)) < rates_P[rows]) * 1.0)
    return np.pad(np.array(rounds, dtype=float), ((0, 3 - len(rounds)), (0, 0)))


def rounds(figure: Figure) -> None:
    """Rollouts of a prompt by its rate, 2 in the mean: of `adaptive()` over 200 steps, of each round of `rounds=3`."""
    rates = np.arange(17) / 16
    rates_P, rng = np.repeat(rates, 32), np.random.default_rng(0)
    left, right = figure.subplots(1, 2, sharey=True)
    left.stackplot(rates, met(rates_P, rng).reshape(len(rates), -1).mean(axis=1), colors=[BLUE])
    left.set(title="adaptive()", ylabel="rollouts of a prompt, 2 in the mean")
    steps = [spent(ba.adaptive(rounds=3, seed=seed), rates_P, rng) for seed in range(20)]
    of_round = np.mean(steps, axis=0).reshape(3, len(rates), -1).mean(axis=2)
    right.stackplot(rates, of_round, labels=["round 1", "round 2", "round 3"], colors=[BLUE, "#56b4e9", ORANGE])
    right.set(title="adaptive(rounds=3)")
    for axes in (left, right):
        axes.axhline(2, color=GREY, linestyle=":", label="the same for all")
        axes.set(xlabel="pass rate of the prompt", xlim=(0, 1))
    right.legend()


def baseline(figure: Figure) -> None:
    """The advantage of one rollout that passed, and of one that failed, against what was believed of its prompt."""
    mean_R, axes = np.linspace(0.01, 0.99, 99), figure.subplots()
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
    axes.legend()


def cost(figure: Figure) -> None:
    """The group size of a prompt that is so many times as expensive as an answer."""
    ratios_P, axes = np.geomspace(0.5, 256, 400), figure.subplots()
    sizes_P = least_groups(ratios_P, np.ones(400), ba.Budget(rollouts=256, floor=0, min_group=1))
    axes.plot(ratios_P, sizes_P, label="smallest group of adaptive()")
    axes.plot(ratios_P, np.maximum(np.sqrt(ratios_P), 1), "--", color=GREY, label="square root")
    axes.set(xscale="log", xlabel="cost of the prompt / cost of an answer", ylabel="rollouts of a group", ylim=(0, 17))
    axes.legend()


def rollouts_of_a_draw(rate: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rollouts that `adaptive()` gives a prompt of this rate for each time it is drawn: docs/how.md."""
    failing = 1 - rate
    doubled = 1 + failing + 2 * failing**2 + 4 * failing**4
    # of a prompt that was given up; p and this, as p may be 0
    return (rate * doubled + failing**8) / (rate + failing**8)


def objective(figure: Figure) -> None:
    """What a prompt weighs in the gradient if its logit is its own, relative to a prompt of rate 1/2."""
    p, successes, axes = np.linspace(0, 1, 201), np.arange(9), figure.subplots()
    deviation = np.sqrt(successes / 8 * (1 - successes / 8))
    weights = {
        "mean success": p * (1 - p),
        "GRPO, groups of 8": binom.pmf(successes, 8, p[:, None]) @ deviation,
        "adaptive()": p * (1 - p) * rollouts_of_a_draw(p),
    }
    for (label, weight), color in zip(weights.items(), ("black", GREY, BLUE), strict=True):
        axes.plot(p, weight / weight[100], label=label, color=color)
    axes.set(xlabel="pass rate of the prompt", ylabel="weight, 1 at a rate of 1/2", xlim=(0, 1), ylim=(0, None))
    axes.legend(loc="lower center")


SINGLE, NARROW = (4.8, 3.1), (2.7, 2.4)
PICTURES: dict[str, tuple[Callable[[Figure], None], tuple[float, float]]] = {
    "gain_least": (partial(front, rank=0, which="least"), NARROW),
    "gain_median": (partial(front, rank=6, which="median"), NARROW),
    "gain_most": (partial(front, rank=-1, which="largest"), NARROW),
    "success": (partial(twelve, draw=success, x="thousand rollouts", y="held-out success", sharex=True), (8.6, 8.6)),
    "coverage": (partial(twelve, draw=coverage, x="held-out success", y="held-out pass@64", sharex=False), (8.6, 8.6)),
    "shapes": (shapes, (8.6, 2.8)),
    "differences": (differences, (8.6, 4.4)),
    "parts": (parts, (4.8, 4.8)),
    "sizes": (sizes, (8.6, 3)),
    "smollm2": (larger, (8.6, 4.8)),
    "peer": (peer, SINGLE),
    "speed": (speed, (8.6, 2.8)),
    **{picture.__name__: (picture, SINGLE) for picture in (belief, value, solver, baseline, cost, objective)},
    "rounds": (rounds, (8.6, 3.2)),
}


def draw(folder: Path) -> None:
    """Writes every picture as an SVG into the folder."""
    folder.mkdir(exist_ok=True)
    for name, (picture, size) in PICTURES.items():
        with plt.rc_context(STYLE):
            figure = plt.figure(figsize=size, layout="constrained")
            picture(figure)
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
            plt.close(figure)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)

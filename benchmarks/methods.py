"""Writes METHODS.md: every allocation method, the time to decide, and its result in the learning benchmark.

    python benchmarks/methods.py                    # prints the table
    python benchmarks/methods.py --write            # and writes METHODS.md and benchmarks/measured.json
    python benchmarks/methods.py --write --keep     # the same, with the times of the last --write

A decision is a whole step of 8,192 rollouts over 1,024 prompts with a history: from `policy.begin` over all rounds,
without the time to learn from the simulated rewards. A method that generates more than it trains on decides over that
many times the rollouts. Methods that choose prompts also decide over 100,000 candidates. The figures are medians of
processor time, which depends less on other programs than wall-clock time.
"""

import argparse
import json
import re
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import budgetalloc as ba
from budgetalloc.beliefs.ids import Id
from budgetalloc.methods.table import MEANINGS, METHODS, SECTIONS, Method, published

ROOT = Path(__file__).parents[1]
PAGE, MEASURED = ROOT / "METHODS.md", ROOT / "benchmarks" / "measured.json"
PROMPTS, CANDIDATES, ROLLOUTS = 1_024, 100_000, 8_192
TIMES = ("milliseconds", "candidates")
# The name of a method in the learning benchmark, if it differs.
LEARNED_AS = {"thompson": "thompson_group", "reinforce_ada": "reinforce_ada_released"}
LEARNED_WITH = {
    "cures": "first=0",
    "sampled": "groups=2",
}  # settings of the benchmark that are not the method's defaults
# What else is published about rollouts, and where it is, or why it is not.
ELSEWHERE = (
    ("rStar2-Agent, DART-GUI (counts)", "`roc`, `dart`"),
    (
        "NuRL (arXiv 2509.25666), Guide (2506.13923)",
        "[`on_all_fail`](docs/api/policies.md): rollouts with your hint where all failed",
    ),
    (
        "TreePO (2508.17445), LATR (2510.24302), BranchGRPO (2509.06040)",
        "[`Trees`](docs/api/trl.md#trees-of-rollouts) has TreePO's branches, LATR's schedule and BranchGRPO's points, "
        "and prunes nothing ([figures](benchmarks/learning/README.md#trees-of-rollouts))",
    ),
    (
        "AEPO (2510.14545), ETTRL (2508.11356)",
        "Not served: they branch where the entropy is high. AEPO's report lacks two constants; with guesses it learned "
        "no more. ETTRL's majority vote is [a reward "
        "function](integrations/trl/README.md#reward-functions-that-compare-the-rollouts-of-a-prompt)",
    ),
    (
        "Tree-GRPO (2509.21240)",
        "Not served: its branching points depend on what follows them, which biases the gradient",
    ),
    ("TRACE (2606.11119)", "Not served: it needs a model of success by prefix"),
    (
        "PORTool (2510.26020), C-3PO (2502.06205), KAT-Coder (2510.18779)",
        "Not served: they branch between agents' steps; `Trees` supports neither tools nor environments",
    ),
    (
        "Polychromic objectives (2509.25424)",
        "[`polychromic_rewards`](docs/api/trl.md#rewards-of-sets), for a reward function of yours: the mean score of "
        "all sets that contain a rollout. Not measured in training",
    ),
    (
        "MaxRL (2602.02710)",
        '[`scale="maxrl"`](docs/how.md#what-is-optimised): with the group\'s mean, and for single rollouts with the '
        "mean of the belief",
    ),
    (
        "Train Long Think Short (2508.08940), DART-GUI (lengths), e1 (2510.27042), Elastic Reasoning (2505.05315)",
        "[Length budgets](docs/lengths.md): `LengthSchedule`, `LengthCap`, `ThoughtAndAnswer` "
        "([figures](benchmarks/learning/README.md#length-budgets)). They cut, where Train Long Think Short and e1 "
        "reward",
    ),
    (
        "HBPO (2507.15844), ThinkDial (2508.18773)",
        "[A row for each budget](docs/lengths.md#one-prompt-under-several-budgets), so that groups, baselines and "
        "beliefs are by budget; the rewards are yours",
    ),
    (
        "AnytimeReasoner (2505.13438)",
        "[`TruncatedThoughts`](docs/lengths.md#one-prompt-under-several-budgets): its credit and both parts of its "
        "baseline, without the weights of BRPO's code",
    ),
    (
        "APRIL, AReaL, ROLL Flash, T-PPO, LongCat, SPEC-RL, Seer",
        "[Asynchronous trainers](integrations/README.md#asynchronous-trainers)",
    ),
    ("ReMix (2507.06892)", "Not served: it changes the trainer's loss"),
    (
        "Skywork R1V2 (2504.16656)",
        "Not served: the report lacks size, age and share of its sample buffer. `buffer=` is AR3PO's",
    ),
    (
        "KRPO (2505.07527)",
        "Not served: its baseline includes the rollout's own reward, which biases the gradient",
    ),
    (
        "ADEPT (2501.12620)",
        '[`mixture="adept"`](docs/mixtures.md): its bandit, over shares of domains',
    ),
    (
        "online knapsack (2510.16499), payment routing (2308.01028), EconProver (2509.12603), rollout lengths in "
        "model-based RL (2206.02380)",
        "Other decisions than rollouts of a prompt",
    ),
)


def trained(method: Method, ids_P: Sequence[Id], rates_P: NDArray[np.float64], visits: int, size: int) -> ba.Policy:
    """A policy that has seen groups of `size` of every prompt, `visits` times."""
    policy, rng = method.build(seed=0), np.random.default_rng(0)
    ids_R, rates_R = [x for x in ids_P for _ in range(size)], np.repeat(rates_P, size)
    for _ in range(visits):
        policy.observe(ids_R, (rng.random(len(ids_R)) < rates_R).astype(float))
    return policy


def seconds(policy: ba.Policy, ids_P: Sequence[Id], rates_P: NDArray[np.float64], rng: np.random.Generator) -> float:
    """Processor time of one step's decisions."""
    needs = policy.needs
    budget = ba.Budget(ROLLOUTS * needs.generate, floor=0, min_group=needs.min_group)
    start = time.process_time()
    step = policy.begin(ids_P, budget)
    counts_P = step.request()
    took = time.process_time() - start
    while counts_P.any():
        at_R = np.repeat(np.arange(len(ids_P)), counts_P)
        step.observe([ids_P[at] for at in at_R.tolist()], (rng.random(at_R.size) < rates_P[at_R]).astype(float))
        start = time.process_time()
        counts_P = step.request()
        took += time.process_time() - start
    step.end()
    return took


def measure(method: Method, times: int) -> dict[str, float]:
    """Milliseconds of a decision; with `candidates`, of one over 100,000."""
    rng = np.random.default_rng(1)
    times_of: dict[str, float] = {}
    sizes = {"milliseconds": (PROMPTS, 4, 8, times)}
    if method.decides == "which prompts":
        sizes["candidates"] = (CANDIDATES, 2, 2, max(times // 3, 2))
    for name, (prompts, visits, size, repeats) in sizes.items():
        ids_P = [f"prompt {k}" for k in range(prompts)]
        rates_P = rng.beta(0.5, 0.5, prompts)
        policy = trained(method, ids_P, rates_P, visits, size)
        took = [seconds(policy, ids_P, rates_P, rng) for _ in range(repeats + 1)]
        times_of[name] = round(1e3 * statistics.median(took[1:]), 3)  # the first also loads and warms up
    return times_of


def standings() -> dict[str, str]:
    """Mean success minus uniform's in the learning benchmark, over the mixes that the method was run on."""
    folder = ROOT / "benchmarks" / "learning"
    sys.path.insert(0, str(folder))
    try:
        from mixes import MIXES
        from run import read
        from table import averaged, best_uniform, collect
    finally:
        sys.path.remove(str(folder))
    files = "results.jsonl", "released.jsonl", "table.jsonl"
    rows = [row for file in files for row in read(folder / file) if row["mix"] in MIXES]
    mixes = list(dict.fromkeys(row["mix"] for row in rows))
    tables = {mix: collect(rows, mix)[0] for mix in mixes}
    bases = {mix: curves.get(best_uniform(rows, mix), {}) for mix, curves in tables.items()}
    standing = {}
    for method in METHODS:
        name = LEARNED_AS.get(method.name, method.name)
        ran = [(curves[name], bases[mix]) for mix, curves in tables.items() if name in curves and bases[mix]]
        if ran:
            gains = [
                np.array([(own[seed] - base[seed]).mean() for seed in sorted(own.keys() & base)]) for own, base in ran
            ]
            gain = "0" if name == "uniform" else averaged(gains)
            seeds = min(len(own) for own, _ in ran)
            standing[method.name] = f"{gain}; {len(ran)}, {seeds}"
    return standing


def page(measured: dict[str, dict[str, Any]]) -> str:
    """METHODS.md."""
    formulas = MEANINGS["paper's formulas"]  # a quotation mark that Python 3.11 does not take inside an f-string
    times, candidates = ([known[key] for known in measured.values() if key in known] for key in TIMES)
    lines = [
        "<!-- Written by `python benchmarks/methods.py --write` from budgetalloc/methods: do not edit. -->",
        "",
        "# Methods",
        "",
        f"The {len(METHODS)} allocation methods of budgetalloc, {published()} of them published: what each does, "
        "its formula and source, and [how it learned](#learning). Docstrings ([reference](docs/api/published.md)) say "
        "what was guessed or left out, and `budgetalloc methods` what each asks of a trainer. p is a prompt's pass "
        "rate, n its number of rollouts.",
        "",
        "- **Source**: the paper on arXiv, or a repository. Unless the table says *formulas* or *description*, the "
        f"implementation was {MEANINGS['released code']} *Formulas*: {formulas} *Description*: "
        f"{MEANINGS['a description']}",
        "- **Graded success** (partial credit, a reward model): the variance of a prompt's successes takes the place "
        "of p (1-p), so a prompt that always earns 0.5 is known, not mixed. Rules about passing and failing use only "
        "the mean success: " + ", ".join(f"`{method.name}`" for method in METHODS if method.of_rates) + ".",
        "- *Starves*: the rule may never give a prompt rollouts again.",
        f"- **Time** to decide {ROLLOUTS:,} rollouts: {min(times):.1f} to {max(times):.1f} ms over {PROMPTS:,} "
        f"prompts, {min(candidates):.0f} to {max(candidates):.0f} ms over {CANDIDATES:,}.",
    ]
    for decides, what in SECTIONS.items():
        titles = ("method", "what it does, and its formula", "source")
        lines += ["", f"## {decides.capitalize()}", "", what, "", _row(titles), _row(["---"] * len(titles))]
        for method in (method for method in METHODS if method.decides == decides):
            does = f"{method.summary} *Starves*." if method.starves else method.summary
            lines.append(_row([f"`{method.name}`", "<br>".join(filter(None, (does, method.formula))), _source(method)]))
    elsewhere = ["", "## Elsewhere, or left out", "", _row(("system", "place, or reason")), _row(["---"] * 2)]
    return "\n".join([*lines, *learning(measured), *elsewhere, *map(_row, ELSEWHERE)]) + "\n"


def learning(measured: dict[str, dict[str, Any]]) -> list[str]:
    """The lines of the section about the learning benchmark, the methods with the most mixes and the best first."""
    rows, unseen = [], []
    for name, known in measured.items():
        gain, _, runs = known.get("learning", "").partition("; ")
        if runs and name != "uniform":
            title = f"`{name}({LEARNED_WITH[name]})`" if name in LEARNED_WITH else f"`{name}`"
            mean, low, high = (*map(float, re.findall(r"[+-]?\d\.\d+", gain)), 0.0, 0.0)[:3]
            if runs == "2, 3" and low < 0 < high:
                unseen.append((-mean, f"{title} {mean:+.3f} ± {(high - low) / 2:.2f}"))
            else:
                rows.append((-int(runs.split(",")[0]), -mean, _row([title, gain, runs])))
    return [
        "",
        "## Learning",
        "",
        "Mean held-out success over a run minus that of uniform groups of the best size, averaged over the [mixes of "
        "tasks](benchmarks/learning/README.md) that the method was run on (95 % interval over seeds). The models are "
        "tiny; yours may rank the methods differently. Methods that are not named were not run. The runs of "
        "`reinforce_ada` were cut short: two seeds on `u_shape`, one on `hard_tail`. A variant that trains on 8 rows "
        "of a prompt instead of 4 had -0.113 (-0.159 to -0.067) over 5 mixes and 3 seeds.",
        "",
        _row(("method", "mean success minus uniform's", "mixes, seeds")),
        _row(["---"] * 3),
        *(row for _, _, row in sorted(rows)),
        "",
        "No difference was seen over 2 mixes and 3 seeds: "
        + ", ".join(cell for _, cell in sorted(unseen))
        + " (half of the interval).",
    ]


def _source(method: Method) -> str:
    """Where a method is from, with a link to arXiv, and what it was checked against if not released code."""
    if method.source == method.checked:
        return method.source
    linked = re.sub(r"arXiv ([\d.]+\d)", r"[\1](https://arxiv.org/abs/\1)", method.source)
    return linked if method.checked == "released code" else f"{linked}; {method.checked.split()[-1]}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write METHODS.md and benchmarks/measured.json")
    parser.add_argument("--keep", action="store_true", help="keep the times measured before; measure what is new")
    parser.add_argument("--times", type=int, default=15, help="decisions of each method (default: %(default)s)")
    options = parser.parse_args()
    before = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    learned = standings()
    measured: dict[str, dict[str, Any]] = {}
    print(f"{'method':<20}{f'{PROMPTS:,} prompts':>16}{f'{CANDIDATES:,}':>14}  learning")
    for method in METHODS:
        kept = {key: before.get(method.name, {}).get(key) for key in TIMES}
        kept = {key: value for key, value in kept.items() if value is not None}
        measured[method.name] = kept if options.keep and kept else measure(method, options.times)
        if method.name in learned:
            measured[method.name]["learning"] = learned[method.name]
        known = measured[method.name]
        cells = [f"{known[key]:.2f} ms" if key in known else "" for key in TIMES]
        print(f"{method.name:<20}{cells[0]:>16}{cells[1]:>14}  {known.get('learning', '')}".rstrip(), flush=True)
    if options.write:
        MEASURED.write_text(json.dumps(measured, indent=1) + "\n")
        PAGE.write_text(page(measured))
        print(f"Wrote {PAGE} and {MEASURED}.")


if __name__ == "__main__":
    main()

"""Every allocation method: the time to decide, and its result in the learning benchmark.

    python benchmarks/methods.py                    # prints the table
    python benchmarks/methods.py --write            # and writes METHODS.md and benchmarks/measured.json
    python benchmarks/methods.py --write --keep     # the same, with the times of the last --write

A decision is a whole step of 8,192 rollouts over 1,024 prompts with a history: from `policy.begin` over all rounds,
without the time to learn from the simulated rewards. A method that generates more than it trains on decides over that
many times the rollouts. Methods that choose prompts also decide over 100,000 candidates. The figures are medians of
processor time, which depends less on other programs than wall-clock time.
"""

import argparse
import ast
import inspect
import json
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
from budgetalloc.policies.costs import bandits, pacing, tokens, trees
from budgetalloc.policies.methods import CHECKED, MEANINGS, METHODS, SECTIONS, WHICH, Method, published

ROOT = Path(__file__).parents[1]
PAGE, MEASURED = ROOT / "METHODS.md", ROOT / "benchmarks" / "measured.json"
PROMPTS, CANDIDATES, ROLLOUTS = 1_024, 100_000, 8_192
# The name of a method in the learning benchmark, if it differs.
LEARNED_AS = {"thompson": "thompson_group"}
LEFT_OUT = (
    "KRPO (arXiv 2505.07527): its baseline is the state of a one-dimensional Kalman filter that runs over the rewards "
    "of a group, started anew for each group (`billhhh/KRPO_LLMs_RL@df1ae2b9`). The state includes the rollout's own "
    "reward, so that the gradient is biased, and depends on the order of the rows, so that two equal rollouts of a "
    "group get different advantages."
)
REPLAYED = ROOT / "benchmarks" / "learning" / "replayed.json"  # of replay.py


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
    if method.decides == WHICH:
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
        from run import read
        from table import BEST, best_uniform, collect, over_mixes
    finally:
        sys.path.remove(str(folder))
    rows = read(folder / "results.jsonl")
    mixes = list(dict.fromkeys(row["mix"] for row in rows))
    tables = {mix: collect(rows, mix)[0] for mix in mixes}
    bases = {mix: best_uniform(rows, mix, curves) for mix, curves in tables.items()}
    standing = {}
    for method in METHODS:
        name = LEARNED_AS.get(method.name, method.name)
        ran = {mix: curves for mix, curves in tables.items() if name in curves and bases[mix] in curves}
        if ran:
            seeds = min(len(curves[name]) for curves in ran.values())
            gain = "0" if name == "uniform" else over_mixes(ran, name, BEST, bases)
            standing[method.name] = f"{gain}; {_number(len(ran), 'mix')}, {_number(seeds, 'seed')}"
    return standing


def replayed() -> dict[str, str]:
    """Share of the oracle's gain over uniform on logged rewards: inside the batch, and among candidates."""
    settings = json.loads(REPLAYED.read_text()) if REPLAYED.exists() else {}
    inside, among = (settings.get(setting, {}) for setting in ("inside the batch of 128", "among 512 candidates"))
    names = {"knapsack": "knapsack, posterior", "sampled": "adaptive"}
    cells = {}
    for method in METHODS:
        name = names.get(method.name, method.name)
        if name in inside and name in among:
            cells[method.name] = f"{inside[name][0]:.2f}; {among[name][0]:.2f}"
    return cells


def _number(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "es" if what.endswith("x") else "s")


def page(measured: dict[str, dict[str, Any]]) -> str:
    """METHODS.md."""
    lines = [
        "<!-- Written by `python benchmarks/methods.py --write` from budgetalloc/policies/methods.py: do not edit. -->",
        "",
        "# Methods",
        "",
        f"{len(METHODS)} allocation methods, of them {published()} published; `budgetalloc methods` prints them too. "
        "Each is a function of `budgetalloc.policies` that returns a policy; the published methods of a section lie in "
        "the folder of `budgetalloc/policies/published/` that has its name. p is a prompt's success rate, n its "
        "number of rollouts.",
        "",
        "- *Checked against*, by which each section is sorted: "
        + "; ".join(f"{name}: {MEANINGS[name].removesuffix('.')}" for name in CHECKED)
        + ".",
        "- *Asks of a trainer*: the arguments of `Needs` that differ from plain GRPO; *rounds* means that a step "
        "generates more than once, *baseline policy* that the policy computes the baseline (`Policy.expect`).",
        f"- *Decides in*: a step of {ROLLOUTS:,} rollouts over {PROMPTS:,} prompts, all its rounds; for methods that "
        f"choose prompts also over {CANDIDATES:,} candidates. Medians of processor time on a machine with 2 cores.",
        "- *Learning*: mean held-out success over a run less that of uniform groups of the best size, at the same "
        "number of rollouts generated, each "
        "at its own tuned learning rate (95 % interval over seeds), averaged over the mixes that the method was run "
        "on; see `benchmarks/learning`. The ranking is that of a tiny model and may differ for yours.",
        "- *Logged rewards*: share of the oracle's gain in mixed groups over uniform on a real GRPO log, inside the "
        "batch; and among four times as many candidates (`benchmarks/learning/replay.py`). The number of "
        "mixed groups does not measure learning: groups of one, which `adaptive` and `pvpo` use, are never mixed.",
        "- *Graded success* (partial credit, a reward model): where a rule has p (1-p) as the variance of the reward, "
        "the variance of the prompt's successes takes its place, so that a prompt that always earns 0.5 is known, not "
        "mixed. Rules about passing and failing take the mean success for p, whatever its variance: "
        + ", ".join(f"`{method.name}`" for method in METHODS if method.of_rates)
        + ".",
        "- *Starves*: the rule may never give a prompt rollouts again.",
    ]
    titles = ("method", "rule", "source", "checked against", "asks of a trainer", "decides in", "learning")
    titles += ("logged rewards", "note")
    for decides, what in SECTIONS.items():
        lines += ["", f"## {decides.capitalize()}", "", what, "", _row(titles), _row(["---"] * len(titles))]
        for method in (method for method in METHODS if method.decides == decides):
            known = measured.get(method.name, {})
            note = " ".join(filter(None, [method.note, "Starves." if method.starves else ""]))
            cells = (f"`{method.name}`", method.formula, method.source, method.checked, method.asks())
            lines.append(_row([*cells, _times(known), known.get("learning", ""), known.get("replayed", ""), note]))
    lines += ["", "## Left out", "", LEFT_OUT]
    lines += [
        "",
        "## Functions of `budgetalloc.policies.costs`",
        "",
        "The cost of rollouts, and the budget of each step of a run.",
    ]
    lines += ["", _row(("function", "what it gives", "called by")), _row(["---"] * 3)]
    lines += [_row((f"`{name}`", what, called)) for name, what, called in cost_functions()]
    return "\n".join(lines) + "\n"


def cost_functions() -> list[tuple[str, str, str]]:
    """The public functions of `policies.costs`: name, first line of the docstring, and the modules that call it."""
    package = Path(ba.__file__).parent
    sources = {path.relative_to(package).as_posix(): ast.parse(path.read_text()) for path in package.rglob("*.py")}
    rows = []
    for module in (tokens, trees, bandits, pacing):
        short = module.__name__.rpartition(".")[2]
        for name, function in vars(module).items():
            if name.startswith("_") or not inspect.isfunction(function) or function.__module__ != module.__name__:
                continue
            trees_of_others = [(path, tree) for path, tree in sources.items() if not path.startswith("policies/costs/")]
            callers = [path for path, tree in trees_of_others if _uses(tree, name)]
            what = (function.__doc__ or "").splitlines()[0]
            called = ", ".join(f"`{path}`" for path in sorted(callers))
            rows.append((f"{short}.{name}", what, called or "a pure function, no trainer calls it"))
    return rows


def _uses(tree: ast.AST, name: str) -> bool:
    """Whether a module imports this function of `budgetalloc.policies.costs`, or takes it from one of its modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("budgetalloc.policies.costs."):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("tokens", "trees", "bandits", "pacing"):
            names = [node.attr]
        else:
            continue
        if name in names:
            return True
    return False


def _times(known: dict[str, Any]) -> str:
    if "milliseconds" not in known:
        return ""
    text = f"{known['milliseconds']:.1f} ms"
    return f"{text}; {known['candidates']:.0f} ms" if "candidates" in known else text


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write METHODS.md and benchmarks/measured.json")
    parser.add_argument("--keep", action="store_true", help="keep the times measured before; measure what is new")
    parser.add_argument("--times", type=int, default=15, help="decisions of each method (default: %(default)s)")
    options = parser.parse_args()
    before = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    learned, on_log = standings(), replayed()
    measured: dict[str, dict[str, Any]] = {}
    print(f"{'method':<20}{f'{PROMPTS:,} prompts':>16}{f'{CANDIDATES:,}':>14}  learning")
    for method in METHODS:
        kept = {key: before.get(method.name, {}).get(key) for key in ("milliseconds", "candidates")}
        kept = {key: value for key, value in kept.items() if value is not None}
        measured[method.name] = kept if options.keep and kept else measure(method, options.times)
        if method.name in learned:
            measured[method.name]["learning"] = learned[method.name]
        if method.name in on_log:
            measured[method.name]["replayed"] = on_log[method.name]
        known = measured[method.name]
        cells = [f"{known[key]:.2f} ms" if key in known else "" for key in ("milliseconds", "candidates")]
        print(f"{method.name:<20}{cells[0]:>16}{cells[1]:>14}  {known.get('learning', '')}".rstrip(), flush=True)
    if options.write:
        MEASURED.write_text(json.dumps(measured, indent=1) + "\n")
        PAGE.write_text(page(measured))
        print(f"Wrote {PAGE} and {MEASURED}.")


if __name__ == "__main__":
    main()

"""The commands, their options and their help."""

import argparse
import math
import pkgutil
from functools import partial
from pathlib import Path
from typing import Any

from budgetalloc.logs.open import KINDS
from budgetalloc.logs.reading import Asked

LOG = (
    "a finished run: a file or folder of TRL completions (log_completions=True), a verl, prime-rl or verifiers dump, a "
    "W&B offline run, a saved datasets.Dataset, a CSV of counts, or a ledger of budgetalloc"
)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="budgetalloc",
        description="Decides how many rollouts each prompt gets in RL with verifiable rewards, and reports how many\n"
        "rollouts of a finished run gave no gradient.",
        epilog="If you have a finished run:  budgetalloc report runs/my_run/completions\n"
        "If you have no run:          budgetalloc demo\n\n"
        "`budgetalloc COMMAND --help` explains a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument(
        "--version", action="version", version=f"budgetalloc {pkgutil.resolve_name('budgetalloc:__version__')}"
    )
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    _report(commands)
    _replay(commands)
    _demo(commands)
    _methods(commands)
    _config(commands)
    _recipe(commands)
    return top


def _command(commands: Any, name: str, short: str, long: str, *examples: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(
        name,
        help=short,
        description=long,
        epilog="\n".join(["examples:", *(f"  budgetalloc {name} {x}".rstrip() for x in examples)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return made


def _report(commands: Any) -> None:
    to = _command(
        commands,
        "report",
        "which rollouts of a finished run gave no gradient, and what other policies would have drawn",
        "Reads the rollouts of a finished run and reports the share of rollouts in groups that all passed or all\n"
        "failed, the prompts of these groups, whether they could be predicted one step ahead, and what other\n"
        "allocation policies would have drawn with the same budget. Needs no GPU and no model.",
        "runs/my_run/completions",
        "ledger.jsonl --html report.html",
        "counts.csv --policy uniform --policy adaptive --json",
    )
    _reading(to, "RUN")
    to.add_argument("--html", type=Path, metavar="FILE", help="also write a self-contained page with the plots")
    _policy(to, "compare this policy on the log, repeatable (default: uniform, knapsack, thompson, adaptive)")
    to.add_argument(
        "--no-replay", action="store_true", help="leave out the comparison of policies, which takes longest"
    )
    to.add_argument(
        "--steps",
        type=_positive,
        metavar="N",
        help="steps of the comparison (default: as many as take about a minute)",
    )
    _parallel(to)
    _json(to)


def _replay(commands: Any) -> None:
    to = _command(
        commands,
        "replay",
        "what allocation policies would have drawn from the logged rewards of a finished run",
        "Allocation policies decide step by step; their rollouts get the rewards of a finished run or, where the log\n"
        "has no more rewards of a prompt, rewards from a model of the prompt's success rate. Prints how many groups\n"
        "would have been mixed, with intervals over seeds and differences from the first policy. Learning does not\n"
        "react to a policy.",
        "ledger.jsonl",
        "ledger.jsonl --policy uniform --policy knapsack --rollouts 1024 --prompts 128 --seeds 10",
        "ledger.jsonl --config configs/knapsack.yaml",
    )
    _reading(to, "LOG")
    _policy(to, "a name of `budgetalloc methods`, repeatable; the others are compared with the first")
    to.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="a YAML file with policy, budget and pacing; see `budgetalloc config`",
    )
    to.add_argument(
        "--rollouts", type=_positive, metavar="N", help="rollouts of a step (default: from the file, or as in the log)"
    )
    to.add_argument(
        "--prompts", type=_positive, metavar="N", help="prompts of a step (default: for groups as large as in the log)"
    )
    to.add_argument(
        "--steps",
        type=_positive,
        metavar="N",
        help="steps (default: from the file, or until the log has no more rewards)",
    )
    _parallel(to)
    _json(to)


def _demo(commands: Any) -> None:
    to = _command(
        commands,
        "demo",
        "real GRPO on a tiny language model: uniform against adaptive",
        "Trains a tiny language model twice with TRL's GRPOTrainer and the same number of rollouts: with groups of\n"
        "equal size, and with an adaptive policy. Prints a table and plots both learning curves. Takes two minutes.",
        "",
        "--config configs/knapsack.yaml --steps 50",
    )
    to.add_argument(
        "--steps", type=_positive, default=150, metavar="N", help="steps of 256 rollouts (default: %(default)s)"
    )
    to.add_argument(
        "--learning-rate",
        type=_rate,
        default=3e-4,
        metavar="X",
        help="learning rate of both runs (default: %(default)s)",
    )
    to.add_argument("--seed", type=_natural, metavar="N", help="seed of both runs (default: from the file, or 0)")
    to.add_argument("--config", type=Path, metavar="FILE", help="a YAML file with the policy to compare with uniform")
    to.add_argument(
        "--out",
        type=Path,
        default=Path("runs/demo"),
        metavar="FOLDER",
        help="folder for the results (default: %(default)s)",
    )


def _methods(commands: Any) -> None:
    to = _command(
        commands,
        "methods",
        "every allocation method: its rule, its source, and what it needs from a trainer",
        "Prints every allocation method, grouped by what it decides: its rule, its source, and what it needs from a\n"
        "trainer beyond plain GRPO.",
        "",
        "--json",
    )
    _json(to)


def _config(commands: Any) -> None:
    to = _command(
        commands,
        "config",
        "checks a YAML file of settings, and prints every setting with its value",
        "Checks a YAML file with policy, budget, estimator and pacing. `demo`, `replay`, the learning benchmark and\n"
        "the recipe `trl` read the same file. An error names the line and the nearest known key.",
        "configs/trl_adaptive.yaml",
        "configs/knapsack.yaml --show",
        "--show                 (prints the defaults, a start for your own file)",
    )
    to.add_argument("file", nargs="?", type=Path, metavar="FILE", help="the file; left out, the defaults are shown")
    to.add_argument("--show", action="store_true", help="print every setting with its value, as YAML")
    _json(to)


def _recipe(commands: Any) -> None:
    to = _command(
        commands,
        "recipe",
        "scripts and settings to start from",
        "Lists the recipes, or prints one: a script that attaches a policy to a trainer, or a YAML file of settings.",
        "",
        "trl > train.py",
        "trl.yaml > trl.yaml",
    )
    to.add_argument("name", nargs="?", metavar="NAME", help="a name of the list; left out, the list is printed")


def _reading(to: argparse.ArgumentParser, name: str) -> None:
    to.add_argument("log", type=Path, metavar=name, help=LOG)
    group = to.add_argument_group("reading the log")
    group.add_argument(
        "--kind", choices=KINDS, metavar="KIND", help=f"the format, if it is not recognised: {', '.join(KINDS)}"
    )
    group.add_argument("--prompt-id", metavar="COLUMN", help="the column that names prompts")
    group.add_argument(
        "--reward",
        action="append",
        type=_weighted,
        metavar="COLUMN[=WEIGHT]",
        help="the column of the reward; repeatable: the reward is then the weighted sum",
    )
    group.add_argument(
        "--success",
        metavar="COLUMN",
        help="the column of success, from 0 to 1 (default: the log's own success, or the reward)",
    )
    group.add_argument(
        "--reward-range", nargs=2, type=float, metavar=("LOW", "HIGH"), help="lowest and highest reward (default: 0 1)"
    )
    group.add_argument(
        "--max-line",
        type=_positive,
        metavar="BYTES",
        help=f"longest line, and a sixteenth of the largest table or row group (default: {Asked.max_line})",
    )


def _policy(to: argparse.ArgumentParser, text: str) -> None:
    to.add_argument("--policy", action="append", metavar="NAME", help=text).completer = _names  # type: ignore[attr-defined]


def _parallel(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--seeds",
        type=partial(_positive, most=10_000),
        default=5,
        metavar="N",
        help="repetitions (default: %(default)s)",
    )
    to.add_argument(
        "--workers",
        type=_workers,
        metavar="N",
        help="processes (default: all cores), or ray: tasks on the Ray cluster of RAY_ADDRESS, or on this machine",
    )


def _json(to: argparse.ArgumentParser) -> None:
    to.add_argument("--json", action="store_true", help="print one JSON document instead")


def _names(**_: Any) -> list[str]:
    """The completions that argcomplete offers after --policy."""
    from budgetalloc.policies.methods import METHODS

    return [method.name for method in METHODS]


def _positive(text: str, most: int = 10**9) -> int:
    value = _natural(text, most)
    if not value:
        raise argparse.ArgumentTypeError("0: use at least 1")
    return value


def _workers(text: str) -> int | str:
    return text if text == "ray" else _positive(text, most=1024)


def _natural(text: str, most: int = 2**32 - 1) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r}: use a whole number that is not negative")
    if len(text) > 10 or int(text) > most:
        raise argparse.ArgumentTypeError(f"{text[:20]}: use at most {most:,}")
    return int(text)


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: use a number that is not negative, such as 3e-4")
    return value


def _weighted(text: str) -> tuple[str, float]:
    column, _, weight = text.partition("=")
    try:
        return column, float(weight or 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: use a number as the weight, such as {column}=0.5") from None

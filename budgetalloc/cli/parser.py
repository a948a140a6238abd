"""The commands of `budgetalloc`, their options and their help."""

import argparse
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from budgetalloc.cli.argument_types import positive, rate, whole, workers
from budgetalloc.cli.log_options import reading_options

__all__ = ["parser"]


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="budgetalloc",
        description="Decides how many rollouts each prompt gets in RL with verifiable rewards, and reports how many\n"
        "rollouts of a finished run gave no gradient.",
        epilog="If you have a finished run:  budgetalloc report runs/my_run/completions\n"
        "Before a run:                budgetalloc check train.py\n"
        "While it trains:             budgetalloc report runs/my_run/ledger.jsonl --follow\n"
        "If you have no run:          budgetalloc demo\n\n"
        "`budgetalloc COMMAND --help` explains a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = pkgutil.resolve_name("budgetalloc:__version__")
    top.add_argument("--version", action="version", version=f"budgetalloc {version}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for add in (_check, _report, _replay, _demo, _methods, _recipe):
        add(commands)
    return top


def _command(
    commands: Any, name: str, short: str, long: str, *examples: str
) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(
        name,
        help=short,
        description=long,
        epilog="\n".join(["examples:", *(f"  budgetalloc {name} {x}".rstrip() for x in examples)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return made


def _check(commands: Any) -> None:
    to = _command(
        commands,
        "check",
        "before a run: what is refused, what success is, and what the first step draws",
        "Runs a training script with its arguments up to GRPOTrainer.train(), and stops there. "
        "Prints the policy,\n"
        "what success is, what the first step would draw, and which options are not the default. "
        "Needs what the\n"
        "training needs: its packages, model and data.\n"
        "Exit status: 0; 1 if an option is refused, the script fails, or it attaches no "
        "AdaptiveGRPOCallback.",
        "train.py",
        "train.py --model Qwen/Qwen2.5-0.5B-Instruct",
    )
    to.add_argument("script", type=Path, metavar="SCRIPT", help="the script that trains")
    to.add_argument(
        "args", nargs=argparse.REMAINDER, metavar="...", help="the arguments of the script"
    )


def _report(commands: Any) -> None:
    to = _command(
        commands,
        "report",
        "which rollouts of a finished run gave no gradient, and what other policies would have "
        "drawn",
        "Reads the rollouts of a finished run and reports the share of rollouts in groups that all "
        "passed or all\n"
        "failed, the prompts of these groups, whether they could be predicted one step ahead, and "
        "what other\n"
        "allocation policies would have drawn with the same budget. Needs no GPU and no model. Of "
        "two runs: both side\n"
        "by side, with the rollouts, tokens and seconds that each needed for the same reward.",
        "runs/my_run/completions",
        "uniform.jsonl adaptive.jsonl",
        "ledger.jsonl --html report.html",
        "runs/my_run/ledger.jsonl --follow",
        "counts.csv --policy uniform --policy adaptive --json",
    )
    reading_options(to, "RUN")
    to.add_argument(
        "other", type=Path, nargs="?", metavar="RUN", help="a second run, shown next to the first"
    )
    to.add_argument(
        "--html", type=Path, metavar="FILE", help="also write a self-contained page with the plots"
    )
    _policy(
        to,
        "compare this policy on the log, repeatable (default: uniform, knapsack, thompson, "
        "adaptive)",
    )
    follow = "print the report, without that comparison, whenever the log has grown; Ctrl-C ends"
    to.add_argument("--follow", action="store_true", help=follow)
    to.add_argument(
        "--no-replay",
        action="store_true",
        help="leave out the comparison of policies, the slowest part",
    )
    _number(to, "--steps", "steps of the comparison (default: as many as take about a minute)")
    _parallel(to)
    _json(to)


def _replay(commands: Any) -> None:
    to = _command(
        commands,
        "replay",
        "what allocation policies would have drawn from the logged rewards of a finished run",
        "Allocation policies decide step by step. Their rollouts get the rewards of a finished run "
        "or, where the log\n"
        "has no more rewards of a prompt, rewards from a model of the prompt's success rate. "
        "Prints how many groups\n"
        "would have been mixed, with intervals over seeds and differences from the first policy. "
        "Learning does not\n"
        "react to a policy.",
        "ledger.jsonl",
        "ledger.jsonl --policy uniform --policy knapsack --rollouts 1024 --prompts 128 --seeds 10",
        "ledger.jsonl --config configs/knapsack.yaml",
    )
    reading_options(to, "LOG")
    _policy(
        to, "a name of `budgetalloc methods`, repeatable; the others are compared with the first"
    )
    settings = "a YAML file with policy, budget and pacing, such as configs/knapsack.yaml"
    to.add_argument("--config", type=Path, metavar="FILE", help=settings)
    _number(to, "--rollouts", "rollouts of a step (default: from the file, or as in the log)")
    _number(to, "--prompts", "prompts of a step (default: for groups as large as in the log)")
    _number(to, "--steps", "steps (default: from the file, or until the log has no more rewards)")
    _parallel(to)
    _json(to)


def _demo(commands: Any) -> None:
    to = _command(
        commands,
        "demo",
        "real GRPO on a tiny language model: uniform against adaptive",
        "Trains a tiny language model twice with TRL's GRPOTrainer and the same number of "
        "rollouts: with groups of\n"
        "equal size, and with an adaptive policy. Prints a table and plots both learning curves. "
        "Takes two minutes.",
        "",
        "--config configs/knapsack.yaml --steps 50",
    )
    _number(to, "--steps", "steps of 256 rollouts", default=150)
    _number(to, "--learning-rate", "learning rate of both runs", rate, 3e-4)
    _number(to, "--seed", "seed of both runs (default: from the file, or 0)", whole(0, 2**32 - 1))
    to.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="a YAML file with the policy to compare with uniform",
    )
    results = "folder for the results (default: %(default)s)"
    to.add_argument("--out", type=Path, default=Path("runs/demo"), metavar="FOLDER", help=results)


def _methods(commands: Any) -> None:
    to = _command(
        commands,
        "methods",
        "every allocation method: its rule, its source, and what it needs from a trainer",
        "Prints every allocation method, grouped by what it decides: its rule, its source, and "
        "what it needs from a\n"
        "trainer beyond plain GRPO.",
        "",
        "--json",
    )
    _json(to)


def _recipe(commands: Any) -> None:
    to = _command(
        commands,
        "recipe",
        "scripts and settings to start from",
        "Lists the recipes, or prints one: a script that attaches a policy to a trainer, or a YAML "
        "file of settings.",
        "",
        "trl > train.py",
        "trl.yaml > trl.yaml",
    )
    to.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="a name of the list; without it, the list is printed",
    )


def _number(
    to: argparse.ArgumentParser,
    name: str,
    text: str,
    kind: Callable[[str], Any] = positive,
    default: Any = None,
) -> None:
    text += "" if default is None else " (default: %(default)s)"
    to.add_argument(name, type=kind, default=default, metavar="N", help=text)


def _policy(to: argparse.ArgumentParser, text: str) -> None:
    to.add_argument("--policy", action="append", metavar="NAME", help=text).completer = _names  # type: ignore[attr-defined]


def _parallel(to: argparse.ArgumentParser) -> None:
    _number(to, "--seeds", "repetitions", whole(high=10_000), 5)
    text = "processes (default: all cores), or ray: on the Ray cluster of RAY_ADDRESS, or on this machine"
    _number(to, "--workers", text, workers)


def _json(to: argparse.ArgumentParser) -> None:
    to.add_argument("--json", action="store_true", help="print one JSON document instead")


def _names(**_: Any) -> list[str]:
    """The completions that argcomplete offers after --policy."""
    from budgetalloc.methods.table import METHODS

    return [method.name for method in METHODS]

"""The commands of `budgetalloc`, their options and their help."""

import argparse
import pkgutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from budgetalloc.cli.argument_types import natural, positive, rate, seconds, workers
from budgetalloc.cli.log_options import reading_options

__all__ = ["parser"]


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="budgetalloc",
        description="Decides how many rollouts each prompt gets in RL with verifiable rewards, and reports how many\n"
        "rollouts of a finished run gave no gradient.",
        epilog="If you have a finished run:  budgetalloc report runs/my_run/completions\n"
        "Before a run:                budgetalloc doctor train.py\n"
        "While it trains:             budgetalloc watch runs/my_run\n"
        "If you have no run:          budgetalloc demo\n\n"
        "`budgetalloc COMMAND --help` explains a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = pkgutil.resolve_name("budgetalloc:__version__")
    top.add_argument("--version", action="version", version=f"budgetalloc {version}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for add in (_doctor, _watch, _report, _replay, _demo, _methods, _config, _recipe):
        add(commands)
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


def _doctor(commands: Any) -> None:
    to = _command(
        commands,
        "doctor",
        "before a run: what is supported, what is refused, and which policy fits",
        "Reads a training script for TRL without running it, a YAML file of settings, or verl's configuration. Makes\n"
        "the checks of the run with what these say, and lists what is known only once the script runs.\n"
        "Exit status: 0, nothing is refused; 1, something is; 2, the file cannot be read, or nothing checked.",
        "train.py",
        "configs/trl_adaptive.yaml --processes 8",
        "gsm8k.yaml trainer.v1.trainer_mode=budgetalloc +budgetalloc.policy=adaptive",
    )
    files = "a script, a YAML file, or verl's configuration and overrides of it"
    to.add_argument("source", nargs="+", metavar="FILE", help=files)
    _number(to, "--processes", "processes of the training, one per GPU", partial(positive, most=100_000), 1)
    _json(to)
    to.set_defaults(mistake=2)


def _watch(commands: Any) -> None:
    to = _command(
        commands,
        "watch",
        "a running training, from its ledger: a live screen, or one line per step in a pipe",
        "Follows the ledger of a running training and shows its rewards, groups, predictions and tokens. A terminal\n"
        "gets a screen that is redrawn; a pipe gets one line per step. Ctrl-C ends the command, with status 0.",
        "runs/trl",
        "runs/trl/ledger.jsonl --once",
        "runs/trl/ledger.jsonl | tee watched.txt",
    )
    to.add_argument("log", type=Path, metavar="RUN", help="a ledger of budgetalloc, or the folder that gets one")
    _number(to, "--every", "seconds between two updates", seconds, 2.0)
    to.add_argument("--once", action="store_true", help="show the present state and end")


def _report(commands: Any) -> None:
    to = _command(
        commands,
        "report",
        "which rollouts of a finished run gave no gradient, and what other policies would have drawn",
        "Reads the rollouts of a finished run and reports the share of rollouts in groups that all passed or all\n"
        "failed, the prompts of these groups, whether they could be predicted one step ahead, and what other\n"
        "allocation policies would have drawn with the same budget. Needs no GPU and no model. Of two runs: both side\n"
        "by side, with the rollouts, tokens and seconds that each needed for the same reward.",
        "runs/my_run/completions",
        "uniform.jsonl adaptive.jsonl",
        "ledger.jsonl --html report.html",
        "counts.csv --policy uniform --policy adaptive --json",
    )
    reading_options(to, "RUN")
    to.add_argument("other", type=Path, nargs="?", metavar="RUN", help="a second run, shown next to the first")
    to.add_argument("--html", type=Path, metavar="FILE", help="also write a self-contained page with the plots")
    _policy(to, "compare this policy on the log, repeatable (default: uniform, knapsack, thompson, adaptive)")
    to.add_argument("--no-replay", action="store_true", help="leave out the comparison of policies, the slowest part")
    _number(to, "--steps", "steps of the comparison (default: as many as take about a minute)")
    _parallel(to)
    _json(to)


def _replay(commands: Any) -> None:
    to = _command(
        commands,
        "replay",
        "what allocation policies would have drawn from the logged rewards of a finished run",
        "Allocation policies decide step by step. Their rollouts get the rewards of a finished run or, where the log\n"
        "has no more rewards of a prompt, rewards from a model of the prompt's success rate. Prints how many groups\n"
        "would have been mixed, with intervals over seeds and differences from the first policy. Learning does not\n"
        "react to a policy.",
        "ledger.jsonl",
        "ledger.jsonl --policy uniform --policy knapsack --rollouts 1024 --prompts 128 --seeds 10",
        "ledger.jsonl --config configs/knapsack.yaml",
    )
    reading_options(to, "LOG")
    _policy(to, "a name of `budgetalloc methods`, repeatable; the others are compared with the first")
    settings = "a YAML file with policy, budget and pacing; see `budgetalloc config`"
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
        "Trains a tiny language model twice with TRL's GRPOTrainer and the same number of rollouts: with groups of\n"
        "equal size, and with an adaptive policy. Prints a table and plots both learning curves. Takes two minutes.",
        "",
        "--config configs/knapsack.yaml --steps 50",
    )
    _number(to, "--steps", "steps of 256 rollouts", positive, 150)
    _number(to, "--learning-rate", "learning rate of both runs", rate, 3e-4)
    _number(to, "--seed", "seed of both runs (default: from the file, or 0)", natural)
    to.add_argument("--config", type=Path, metavar="FILE", help="a YAML file with the policy to compare with uniform")
    results = "folder for the results (default: %(default)s)"
    to.add_argument("--out", type=Path, default=Path("runs/demo"), metavar="FOLDER", help=results)


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
    to.add_argument("file", nargs="?", type=Path, metavar="FILE", help="the file; without it, the defaults are shown")
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
    to.add_argument("name", nargs="?", metavar="NAME", help="a name of the list; without it, the list is printed")


def _number(
    to: argparse.ArgumentParser, name: str, text: str, kind: Callable[[str], Any] = positive, default: Any = None
) -> None:
    text += "" if default is None else " (default: %(default)s)"
    to.add_argument(name, type=kind, default=default, metavar="N", help=text)


def _policy(to: argparse.ArgumentParser, text: str) -> None:
    to.add_argument("--policy", action="append", metavar="NAME", help=text).completer = _names  # type: ignore[attr-defined]


def _parallel(to: argparse.ArgumentParser) -> None:
    _number(to, "--seeds", "repetitions", partial(positive, most=10_000), 5)
    text = "processes (default: all cores), or ray: on the Ray cluster of RAY_ADDRESS, or on this machine"
    _number(to, "--workers", text, workers)


def _json(to: argparse.ArgumentParser) -> None:
    to.add_argument("--json", action="store_true", help="print one JSON document instead")


def _names(**_: Any) -> list[str]:
    """The completions that argcomplete offers after --policy."""
    from budgetalloc.policies.methods import METHODS

    return [method.name for method in METHODS]

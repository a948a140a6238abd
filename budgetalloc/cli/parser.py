"""What can be typed: commands, their options, and a help that needs no other page."""

import argparse
import pkgutil
from pathlib import Path
from typing import Any

from budgetalloc.logs.open import KINDS

LOG = (
    "a finished run: a file or folder of TRL completions (log_completions=True), a verl, prime-rl or verifiers dump, a "
    "W&B offline run, a saved datasets.Dataset, a CSV of counts, or a ledger of budgetalloc"
)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="budgetalloc",
        description="Decides how many rollouts each prompt gets in RL with verifiable rewards, and says what a\n"
        "finished run spent on groups that taught nothing.",
        epilog="Start with a run that you have:  budgetalloc report runs/my_run/completions\n"
        "or without one:                  budgetalloc demo\n\n"
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
        "how much of a finished run taught nothing, and what other policies would have done",
        "Reads the rollouts of a finished run and says which share of them lay in groups that all passed or all\n"
        "failed, which prompts those were, whether it could be foreseen one step ahead, and what other allocation\n"
        "policies would have drawn with the same budget. No GPU, no model.",
        "runs/my_run/completions",
        "ledger.jsonl --html report.html",
        "counts.csv --policy uniform --policy adaptive --json",
    )
    _reading(to, "RUN")
    to.add_argument("--html", type=Path, metavar="FILE", help="also write a self-contained page with the plots")
    _policy(to, "compare this policy on the log, repeatable (default: uniform, knapsack, thompson, adaptive)")
    to.add_argument("--no-replay", action="store_true", help="leave the comparison of policies out: one pass, fast")
    to.add_argument("--steps", type=_positive, metavar="N", help="of the comparison (default: about a minute's worth)")
    _parallel(to)
    _json(to)


def _replay(commands: Any) -> None:
    to = _command(
        commands,
        "replay",
        "allocation policies against the logged rewards of a finished run",
        "Lets allocation policies decide step by step, answered by the rewards of a finished run and, where the log\n"
        "has no more of a prompt, by a model of its rate. Says how many groups would have been mixed, with intervals\n"
        "over seeds and differences from the first policy. Learning does not react to what a policy chose.",
        "ledger.jsonl",
        "ledger.jsonl --policy uniform --policy knapsack --rollouts 1024 --prompts 128 --seeds 10",
        "ledger.jsonl --config configs/knapsack.yaml",
    )
    _reading(to, "LOG")
    _policy(to, "a name of `budgetalloc methods`, repeatable; the first is what others are compared with")
    to.add_argument(
        "--config", type=Path, metavar="FILE", help="a YAML file that says policy, budget and pacing; see `config`"
    )
    to.add_argument(
        "--rollouts", type=_positive, metavar="N", help="of a step (default: the file's, or a step's in the log)"
    )
    to.add_argument(
        "--prompts", type=_positive, metavar="N", help="of a step (default: as many as make groups as in the log)"
    )
    to.add_argument("--steps", type=_positive, metavar="N", help="(default: the file's, or as many as the log answers)")
    _parallel(to)
    _json(to)


def _demo(commands: Any) -> None:
    to = _command(
        commands,
        "demo",
        "real GRPO on a tiny language model: uniform against adaptive",
        "Trains a tiny language model twice with TRL's GRPOTrainer and the same number of rollouts: plain, and with\n"
        "AdaptiveGRPOCallback. Prints a table and writes a picture of both learning curves. About two minutes.",
        "",
        "--config configs/knapsack.yaml --steps 50",
    )
    to.add_argument("--steps", type=_positive, default=150, metavar="N", help="of 256 rollouts (default: %(default)s)")
    to.add_argument("--learning-rate", type=float, default=3e-4, metavar="X", help="of both (default: %(default)s)")
    to.add_argument("--seed", type=_natural, metavar="N", help="of both runs (default: the file's, or 0)")
    to.add_argument("--config", type=Path, metavar="FILE", help="a YAML file with the policy to hold against uniform")
    to.add_argument(
        "--out", type=Path, default=Path("runs/demo"), metavar="FOLDER", help="for results (default: %(default)s)"
    )


def _methods(commands: Any) -> None:
    to = _command(
        commands,
        "methods",
        "every allocation method: its rule, its source, and what it asks of a trainer",
        "Prints every allocation method by what it decides: its rule, its source, and what it asks of a trainer\n"
        "beyond plain GRPO.",
        "",
        "--json",
    )
    _json(to)


def _config(commands: Any) -> None:
    to = _command(
        commands,
        "config",
        "checks a YAML file of settings, and prints what it says with every default",
        "Checks a YAML file that says policy, budget, estimator and pacing. `demo`, `replay`, the learning benchmark\n"
        "and integrations/trl/train.py read the same file. A mistake is named with its line and the nearest known key.",
        "configs/trl_adaptive.yaml",
        "configs/knapsack.yaml --show",
        "--show                 (the defaults, to begin a file of your own)",
    )
    to.add_argument("file", nargs="?", type=Path, metavar="FILE", help="left out: the defaults")
    to.add_argument("--show", action="store_true", help="print every setting with its value, as YAML")
    _json(to)


def _reading(to: argparse.ArgumentParser, name: str) -> None:
    to.add_argument("log", type=Path, metavar=name, help=LOG)
    group = to.add_argument_group("reading the log")
    group.add_argument("--kind", choices=KINDS, metavar="KIND", help=f"what wrote it, if not clear: {', '.join(KINDS)}")
    group.add_argument("--prompt-id", metavar="COLUMN", help="the column that names prompts")
    group.add_argument(
        "--reward",
        action="append",
        type=_weighted,
        metavar="COLUMN[=WEIGHT]",
        help="the column of the reward; repeated, the weighted sum of several",
    )
    group.add_argument(
        "--reward-range", nargs=2, type=float, metavar=("LOW", "HIGH"), help="lowest and highest reward (default: 0 1)"
    )


def _policy(to: argparse.ArgumentParser, text: str) -> None:
    to.add_argument("--policy", action="append", metavar="NAME", help=text).completer = _names  # type: ignore[attr-defined]


def _parallel(to: argparse.ArgumentParser) -> None:
    to.add_argument("--seeds", type=_positive, default=5, metavar="N", help="repetitions (default: %(default)s)")
    to.add_argument("--workers", type=_positive, metavar="N", help="processes (default: all cores)")


def _json(to: argparse.ArgumentParser) -> None:
    to.add_argument("--json", action="store_true", help="print one JSON document instead")


def _names(**_: Any) -> list[str]:
    """What argcomplete offers after --policy."""
    from budgetalloc.policies.methods import METHODS

    return [method.name for method in METHODS]


def _positive(text: str) -> int:
    value = _natural(text)
    if value == 0:
        raise argparse.ArgumentTypeError("0: use at least 1")
    return value


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r}: use a whole number that is not negative")
    return int(text)


def _weighted(text: str) -> tuple[str, float]:
    column, _, weight = text.partition("=")
    try:
        return column, float(weight or 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: the weight is a number, such as {column}=0.5") from None

"""The commands of `budgetalloc`, their options and their help."""

import argparse
import math
import pkgutil
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from budgetalloc.errors import nearest_name

_RAW = argparse.RawDescriptionHelpFormatter
_UNKNOWN = re.compile(r"unrecognized arguments: (\S+)|invalid choice: '(.*)' \(choose from (.*)\)")


class _Parser(argparse.ArgumentParser):
    """A parser that suggests the nearest command or option, and whose commands refuse what they do
    not know themselves: the parser of all commands does not know their options."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        known, others = super().parse_known_args(args, namespace)
        if others and not self._subparsers:
            self.error(f"unrecognized arguments: {' '.join(others)}")
        return known, others

    def error(self, message: str) -> NoReturn:
        if unknown := _UNKNOWN.search(message):
            option, choice, choices = unknown.groups()
            words = re.findall(r"[\w.]+", choices or "") or list(self._option_string_actions)
            message += nearest_name(option or choice, words).rstrip(".")
        super().error(message)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = _Parser(
        prog="budgetalloc",
        description=textwrap.fill(
            "Decides how many rollouts each prompt gets in RL with verifiable rewards, and reports "
            "how many rollouts of a finished run gave no gradient.",
            100,
        ),
        epilog="If you have a finished run:  budgetalloc report runs/my_run/completions\n"
        "Before a run:                budgetalloc check train.py\n"
        "While it trains:             budgetalloc report runs/my_run/ledger.jsonl --follow\n"
        "If you have no run:          budgetalloc demo\n\n"
        "`budgetalloc COMMAND --help` explains a command.",
        formatter_class=_RAW,
    )
    version = pkgutil.resolve_name("budgetalloc:__version__")
    top.add_argument("--version", action="version", version=f"budgetalloc {version}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")

    def command(name: str, short: str, long: str, *examples: str) -> Any:
        lines = ["examples:", *(f"  budgetalloc {name} {x}".rstrip() for x in examples)]
        made = commands.add_parser(name, help=short, formatter_class=_RAW)
        made.description, made.epilog = textwrap.fill(long, 100), "\n".join(lines)
        return made.add_argument

    add = command(
        "check",
        "before a run: what is refused, what success is, and what the first step draws",
        "Runs a training script with its arguments up to GRPOTrainer.train(), and stops there. "
        "Prints the policy, what success is, what the first step would draw, and which options are "
        "not the default. Needs what the training needs: its packages, model and data. Exit "
        "status: 0; 1 if an option is refused, the script fails, or it attaches no "
        "AdaptiveGRPOCallback.",
        "train.py",
        "train.py --model Qwen/Qwen2.5-0.5B-Instruct",
        "--policy mine.py:thirds train.py",
    )
    _policy(add, "this policy in place of the script's own", action="store")
    add("script", type=Path, metavar="SCRIPT", help="the script that trains")
    add("args", nargs=argparse.REMAINDER, metavar="...", help="the arguments of the script")

    add = command(
        "report",
        "which rollouts of a finished run gave no gradient, and what other policies would have "
        "drawn",
        "Reads the rollouts of a finished run and reports the share of rollouts in groups that all "
        "passed or all failed, the prompts of these groups, whether they could be predicted one "
        "step ahead, and what other allocation policies would have drawn with the same budget. "
        "Needs no GPU and no model. Of two runs: both side by side, with the rollouts, tokens and "
        "seconds that each needed for the same reward.",
        "runs/my_run/completions",
        "uniform.jsonl adaptive.jsonl",
        "ledger.jsonl --html report.html",
        "runs/my_run/ledger.jsonl --follow",
        "counts.csv --policy uniform --policy adaptive --json",
    )
    _reading(add, "RUN")
    add("other", type=Path, nargs="?", metavar="RUN", help="a second run, next to the first")
    add("--html", type=Path, metavar="FILE", help="also write a self-contained page with plots")
    compared = "compare this policy on the log (default: uniform, knapsack, thompson, adaptive)"
    _policy(add, f"{compared}; repeatable")
    follow = "print the report, without that comparison, whenever the log has grown; Ctrl-C ends"
    add("--follow", action="store_true", help=follow)
    ties = "rewards of a group that differ by at most this count as equal (default: %(default)s)"
    add("--resolution", type=float, default=0.0, metavar="X", help=ties)
    skip = "leave out the comparison of policies, the slowest part"
    add("--no-replay", action="store_true", help=skip)
    _number(add, "--steps", "steps of the comparison (default: as many as take about a minute)")
    _parallel(add)

    add = command(
        "replay",
        "what allocation policies would have drawn from the logged rewards of a finished run",
        "Allocation policies decide step by step. Their rollouts get the rewards of a finished run "
        "or, where the log has no more rewards of a prompt, rewards from a model of the prompt's "
        "success rate. Prints how many groups would have been mixed, with intervals over seeds and "
        "differences from the first policy. Learning does not react to a policy.",
        "ledger.jsonl",
        "ledger.jsonl --policy uniform --policy knapsack --rollouts 1024 --prompts 128 --seeds 10",
        "ledger.jsonl --config configs/knapsack.yaml",
    )
    _reading(add, "LOG")
    _policy(add, "replay this policy; repeatable: the others are compared with the first")
    settings = "a YAML file with policy, budget and pacing, such as configs/knapsack.yaml"
    add("--config", type=Path, metavar="FILE", help=settings)
    _number(add, "--rollouts", "rollouts of a step (default: from the file, or as in the log)")
    _number(add, "--prompts", "prompts of a step (default: for groups as large as in the log)")
    _number(add, "--steps", "steps (default: from the file, or until the log has no more rewards)")
    _parallel(add)

    add = command(
        "demo",
        "real GRPO on a tiny language model: uniform against adaptive",
        "Trains a tiny language model with TRL's GRPOTrainer, with several seeds and the same "
        "number of rollouts: with uniform groups, with adaptive() and with adaptive(rounds=3), or "
        "with the policy of a file. Prints a table, and plots the mean curves. Takes about four "
        "minutes on two cores.",
        "",
        "--config configs/knapsack.yaml --seeds 2",
    )
    _number(add, "--steps", "steps of 256 rollouts", default=80)
    _number(add, "--learning-rate", "learning rate of all trainings", _rate, 3e-4)
    _number(add, "--seeds", "seeds of each policy", _whole(high=100), 4)
    _number(add, "--seed", "the first seed", _whole(0, 2**32 - 101), 20)
    _number(add, "--workers", "processes (default: all cores)", _whole(high=1024))
    add("--config", type=Path, metavar="FILE", help="a YAML file with the policy to compare")
    results = "folder for the results (default: %(default)s)"
    add("--out", type=Path, default=Path("runs/demo"), metavar="FOLDER", help=results)

    add = command(
        "methods",
        "every allocation method: its rule, its source, and what it needs from a trainer",
        "Prints every allocation method, grouped by what it decides: its rule, its source, and "
        "what it needs from a trainer beyond plain GRPO.",
        "",
        "--json",
    )
    _json(add)

    add = command(
        "recipe",
        "scripts and settings to start from",
        "Lists the recipes, or prints one: a script that attaches a policy to a trainer, or a YAML "
        "file of settings.",
        "",
        "trl > train.py",
        "trl.yaml > trl.yaml",
    )
    add("name", nargs="?", metavar="NAME", help="a name of the list; without it, the list")
    return top


def _reading(add: Callable[..., Any], name: str) -> None:
    """Adds the options that say which log to read and how. `reading.opened` takes their values."""
    log = (
        "a finished run: a file or folder of TRL completions (log_completions=True), a verl, "
        "prime-rl, tinker-cookbook or verifiers dump, a reward profile of NeMo Gym, a saved "
        "datasets.Dataset, a CSV or JSON lines of rollouts or counts, or a ledger of budgetalloc"
    )
    add("log", type=Path, metavar=name, help=log)
    add("--step", metavar="COLUMN", help="the column of steps")
    add("--prompt", "--prompt-id", metavar="COLUMN", help="the column that names prompts")
    reward = "the column of the reward; repeatable: the reward is then the weighted sum"
    add("--reward", action="append", type=_weighted, metavar="COLUMN[=WEIGHT]", help=reward)
    success = (
        "the column of success, from 0 to 1 (default: the log's own success; of several reward "
        "functions the one that gave both 0 and 1; else the reward)"
    )
    add("--success", metavar="COLUMN", help=success)
    add("--length", metavar="COLUMN", help="the column of lengths in tokens")
    bounds = "lowest and highest reward (default: 0 1)"
    add("--reward-range", nargs=2, type=float, metavar=("LOW", "HIGH"), help=bounds)


def _number(
    add: Callable[..., Any],
    name: str,
    text: str,
    kind: Callable[[str], Any] | None = None,
    default: Any = None,
) -> None:
    text += "" if default is None else " (default: %(default)s)"
    add(name, type=kind or _whole(), default=default, metavar="N", help=text)


def _policy(add: Callable[..., Any], text: str, action: str = "append") -> None:
    text += "; a name of `budgetalloc methods`, or a function of yours as mine.py:thirds"
    made = add("--policy", action=action, metavar="NAME", help=text)
    made.completer = _names  # argcomplete's


def _parallel(add: Callable[..., Any]) -> None:
    _number(add, "--seeds", "repetitions", _whole(high=10_000), 5)
    text = "processes (default: all cores), or ray: on the cluster of RAY_ADDRESS, or here"
    _number(add, "--workers", text, _workers)
    _json(add)


def _json(add: Callable[..., Any]) -> None:
    add("--json", action="store_true", help="print one JSON document instead")


def _names(**_: Any) -> list[str]:
    from budgetalloc.methods.table import METHODS

    return [method.name for method in METHODS]


def _whole(low: int = 1, high: int = 10**9) -> Callable[[str], int]:
    """A parser of whole numbers within these bounds."""

    def parse(text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high:
            return int(text)
        raise argparse.ArgumentTypeError(
            f"{text[:20]!r}: use a whole number from {low} to {high:,}"
        )

    return parse


def _workers(text: str) -> int | str:
    return text if text == "ray" else _whole(high=1024)(text)


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if 0 <= value < math.inf:
        return value
    raise argparse.ArgumentTypeError(f"{text!r}: use a number that is not negative, such as 3e-4")


def _weighted(text: str) -> tuple[str, float]:
    """A column with its weight, such as `format=0.2`."""
    column, _, weight = text.partition("=")
    try:
        return column, float(weight or 1)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: use a number as the weight, such as {column}=0.5"
        ) from None

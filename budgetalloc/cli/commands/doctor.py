"""`budgetalloc doctor`: what is refused and which policy fits, before a run starts."""

import argparse
import json
import os
import textwrap
from dataclasses import asdict
from pathlib import Path

from budgetalloc.cli.config import Config
from budgetalloc.cli.config.yaml_file import read_text, text_of
from budgetalloc.cli.doctor.checks import examine
from budgetalloc.cli.doctor.script import read_script
from budgetalloc.cli.doctor.setup import Diagnosis, of_config, shortened
from budgetalloc.cli.doctor.verl_config import SECTIONS, examine_verl, node, overrides
from budgetalloc.errors import BudgetallocError, InputError

__all__ = ["as_text", "diagnosed", "run"]

_LONGEST = 200_000  # characters of a file


def run(args: argparse.Namespace) -> int:
    """Prints the diagnosis. The exit status is 1 if something is refused, 2 if nothing could be checked."""
    try:
        diagnosis = diagnosed(args.source, args.processes)
    except BudgetallocError as error:
        raise type(error)(shortened(str(error))) from error
    print(json.dumps(asdict(diagnosis.shortened()), indent=1) if args.json else as_text(diagnosis))
    return 1 if diagnosis.refused else 2 if diagnosis.blind else 0


def diagnosed(words: list[str], processes: int) -> Diagnosis:
    """The diagnosis of a script, of a settings file, or of verl's configuration with its overrides."""
    first, *more = words
    if "=" in first and not os.path.exists(first):
        return examine_verl("overrides", overrides(words))
    text = text_of(Path(first), _LONGEST, "a script or a YAML file of settings")
    if not first.endswith((".yaml", ".yml")):
        if more:
            raise InputError(f"{more[0]!r}: only verl's configuration takes overrides. Give one file.")
        return examine(read_script(text, first, processes))
    values = read_text(text, first).values
    if more or {"actor_rollout_ref", "algorithm", "trainer", "budgetalloc"} & set(values):
        own = {key: value for key, value in values.items() if key in SECTIONS}
        return examine_verl(first, node(own, overrides(more)))
    return examine(of_config(Config.parse(text, first), processes))


def as_text(diagnosis: Diagnosis, width: int = 110) -> str:
    """One screen: the run, what is refused, warnings, which policy fits, and what could not be read."""
    verdict, diagnosis = _verdict(diagnosis), diagnosis.shortened()
    lines = [f"{diagnosis.file}, read and not run", ""]
    for name, text in diagnosis.facts:
        lines += textwrap.wrap(f"{name:<9} {text}", width, subsequent_indent=" " * 10)
    parts = [(verdict, diagnosis.refused), ("WARNINGS", diagnosis.warned), ("WHICH POLICY FITS", diagnosis.advice)]
    parts.append(("NOT KNOWN BEFORE THE RUN", diagnosis.unread))
    for title, texts in parts:
        lines += ["", title] if texts or title == verdict else []
        for text in texts:
            lines += textwrap.wrap(text, width, initial_indent="  - ", subsequent_indent="    ")
    return "\n".join(lines)


def _verdict(diagnosis: Diagnosis) -> str:
    """One line: what is refused, and what was not checked."""
    if diagnosis.refused:
        return f"REFUSED: {len(diagnosis.refused)} {'reason' if len(diagnosis.refused) == 1 else 'reasons'}"
    if diagnosis.blind:
        return "NOTHING WAS CHECKED: neither the step nor the dataset nor the rewards could be read"
    if diagnosis.unchecked:
        return f"REFUSED: nothing of what could be read. NOT CHECKED: {', '.join(diagnosis.unchecked)}"
    return "REFUSED: nothing"

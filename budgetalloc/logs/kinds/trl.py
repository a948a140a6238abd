"""The completions that TRL writes with `GRPOConfig(log_completions=True)`: a parquet file per logging step.

`completions/completions_00007.parquet` has a row for each rollout of the last batch before step 7 was logged: step,
prompt, completion, a column for each reward function, what reward functions logged with `log_extra`, and advantage.
With `logging_steps` above 1 only the last batch is logged. If one generation is used for several steps, the same rows
are logged again; the reader takes them once. A step repeated after a resume overwrites its file. Tokens are not logged,
so that lengths are unknown. A run that evaluates writes the evaluation's completions to the file of that step, in place
of those of training (TRL 1.16). The file does not mark them; a checkpoint in the same folder shows the steps of
evaluations.
"""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id, factorize, text_id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError, printable
from budgetalloc.logs.chunk import FAULTS, Notes, Rows, as_id, as_integer
from budgetalloc.logs.column_names import listed
from budgetalloc.logs.columns import weighted
from budgetalloc.logs.formats import arrow
from budgetalloc.logs.log_stream import LogStream
from budgetalloc.logs.prompt_texts import prompt_text
from budgetalloc.logs.success_choice import SuccessChoice

_FILE = re.compile(r"completions_(\d{1,15})\.parquet")
_STALE = 3600.0  # seconds; files of one run may be copied in any order
_OWN = {"step", "prompt", "completion", "advantage", "prompt_id"}
_STATE = 1 << 28  # bytes of a trainer's state that are read


def find(path: Path) -> list[Path]:
    """One file of completions, or the folder of them: itself, or `completions` in a trainer's output folder."""
    if path.is_file():
        return [path] if _FILE.fullmatch(path.name) else []
    return [x for x in (path, path / "completions") if x.is_dir() and files(x)]


def files(path: Path) -> list[Path]:
    """The files, in the order of their steps."""
    if path.is_file():
        return [path]
    numbered = [(int(match[1]), x) for x in path.iterdir() if (match := _FILE.fullmatch(x.name)) and x.is_file()]
    return [x for _, x in sorted(numbered)]


def rows(reading: LogStream) -> Iterator[Rows]:
    """The rollouts of each file in turn; a batch that was logged twice is read once, evaluations are left out."""
    assert reading.path is not None
    notes, before, newest = reading.notes, None, 0.0
    paths = files(reading.path)
    evaluated = _evaluated(reading.path)
    regular, choice = _Regular(), SuccessChoice(notes, known=isinstance(reading.options.reward, Mapping))
    for path in paths:
        stat, step = path.stat(), _step(path)
        if stat.st_mtime < newest - _STALE:
            notes["file older than that of an earlier step: left by another run?"] += 1
        newest = max(newest, stat.st_mtime)
        batch = _read(path, reading, choice)
        reading.done += stat.st_size
        if batch is None:
            notes["file that cannot be read"] += 1
            continue
        if before is not None and _same(batch, before):
            notes["row logged again at a step that generated nothing"] += len(batch[0])
            continue
        before = batch
        if step in evaluated:
            notes.doubt(
                "row of a step with an evaluation, left out: TRL overwrites the training's completions there",
                len(batch[0]),
            )
            continue
        regular.add(batch[0])
        yield batch[0]
    if not evaluated and (suspects := regular.rows(len(paths))):
        notes.doubt("row of a prompt that occurs at regular steps only: is it from evaluations?", suspects)
    steps = [step for path in paths if (step := _step(path)) is not None]
    if reading.path.is_dir() and (missing := max(steps, default=0) - len(steps)) > 0:
        notes.missing = missing, max(steps)
        notes["step without a file (logging_steps=1 logs every step)"] += missing


def texts(reading: LogStream, ids: Iterable[Id]) -> dict[Id, str]:
    """The text of these prompts; files are read until all texts are known, and unreadable files are skipped."""
    assert reading.path is not None
    wanted, known = set(ids), dict[Id, str]()
    for path in files(reading.path):
        if wanted <= known.keys():
            break
        with contextlib.suppress(InputError, *arrow.faults()):
            names = arrow.schema(path) or ()
            columns = [name for name in ("prompt", "prompt_id", reading.options.prompt_id) if name in names]
            with arrow.parquet(path, columns, reading.options.max_line, columns, whole=True) as file:
                table = file.read(columns)
            prompts = arrow.names(table.column("prompt"))
            for name, prompt in zip(_ids(table, path, reading.options.prompt_id), prompts, strict=True):
                if name in wanted and name not in known:
                    known[name] = prompt_text(prompt)
    return known


def _step(path: Path) -> int | None:
    match = _FILE.fullmatch(path.name)
    return int(match[1]) if match else None


def _evaluated(path: Path) -> set[int]:
    """The steps in which the run evaluated, as the trainer's last checkpoint says; none if there is no checkpoint."""
    folder = path.parent.parent if path.is_file() else path.parent
    states = [
        x for x in (*folder.glob("checkpoint-*/trainer_state.json"), folder / "trainer_state.json") if x.is_file()
    ]
    evaluated: set[int] = set()
    for state in sorted(states, key=lambda x: x.stat().st_mtime)[-1:]:
        try:
            content = json.loads(state.read_bytes()) if state.stat().st_size <= _STATE else {}
            for entry in content["log_history"]:
                if any(key.startswith("eval_") for key in entry):
                    evaluated.add(as_integer(entry["step"]))
        except (OSError, *FAULTS):
            continue
    return evaluated


class _Regular:
    """Finds prompts that occur in exactly every k-th file, k > 1, as prompts of evaluations do."""

    def __init__(self) -> None:
        self.files = 0
        self.seen: dict[Id, list[int]] = {}  # first file, last file, distance, files, rows; distance -1: irregular

    def add(self, part: Rows) -> None:
        for name, rows in Counter(part.ids_R).items():
            entry = self.seen.setdefault(name, [self.files, self.files, 0, 0, 0])
            apart = self.files - entry[1]
            entry[2] = apart if entry[3] == 1 else entry[2] if apart == entry[2] else -1 if entry[3] else 0
            entry[1], entry[3], entry[4] = self.files, entry[3] + 1, entry[4] + rows
        self.files += 1

    def rows(self, files: int) -> int:
        """The rows of at least two such prompts with the same period to the end; 0 if most of all prompts are such."""
        rhythm = Counter(
            (first, apart)
            for first, last, apart, times, _ in self.seen.values()
            if times > 2 and apart > 1 and first < 2 * apart and last + apart >= files
        )
        suspects = sum(
            rows for first, _, apart, times, rows in self.seen.values() if times > 2 and rhythm[first, apart] > 1
        )
        return suspects if 2 * suspects < sum(entry[4] for entry in self.seen.values()) else 0


def _read(path: Path, reading: LogStream, choice: SuccessChoice) -> tuple[Rows, Any] | None:
    """A file's rollouts and its completions; None if it cannot be read."""
    names, options = arrow.schema(path), reading.options
    if names is None:
        return None
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path} has the column {name!r} twice, in {listed(names)}: rename one of them.")
    texts = [name for name in names if name in ("completion", "prompt", "prompt_id", options.prompt_id)]
    try:
        with arrow.parquet(path, names, options.max_line, texts, whole=True) as file:
            table = file.read()
        table.validate(full=True)
        step = _step(path)
        step = as_integer(table.column("step")[0].as_py()) if step is None else step
    except InputError:
        raise
    except arrow.faults():
        return None
    ids_R = _ids(table, path, options.prompt_id)
    named_R = np.array([name is not None for name in ids_R], dtype=bool)
    rewards_R, scores, weights = _rewards(table, path, reading, ids_R)
    success_R = _numbers(table, path, "success", options.success) if options.success else choice(scores, weights)
    if not named_R.all():
        reading.notes["row without a prompt"] += int((~named_R).sum())
    kept = np.flatnonzero(named_R).tolist()
    part = Rows(np.full(len(kept), step), [ids_R[at] for at in kept], rewards_R[named_R])
    if success_R is not None:
        part = replace(part, success_R=success_R[named_R])
    return part, table.column("completion") if "completion" in names else None


def _numbers(table: Any, path: Path, argument: str, name: str) -> FloatArray:
    """A column of numbers, NaN where there is none; raises `InputError` if it is no such column."""
    pa = arrow.pyarrow()
    if name not in table.column_names:
        raise InputError(f"{argument}={name!r}: {path} has no column {name!r}, it has {listed(table.column_names)}.")
    try:
        return np.array(table.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    except arrow.faults() as error:
        raise InputError(
            f"{argument}={name!r}: the column of {path} holds {table.schema.field(name).type}, not numbers."
        ) from error


def _same(batch: tuple[Rows, Any], before: tuple[Rows, Any]) -> bool:
    (part, completions), (old, old_completions) = batch, before
    return (
        completions is not None
        and part.ids_R == old.ids_R
        and np.array_equal(part.rewards_R, old.rewards_R, equal_nan=True)
        and bool(completions.equals(old_completions))
    )


def _ids(table: Any, path: Path, prompt_id: str | None) -> list[Any]:
    """The prompt of each row: its id if there is a column of ids, else a hash of its text or messages."""
    names = table.column_names
    if prompt_id is not None and prompt_id not in names:
        raise InputError(f"prompt_id={prompt_id!r}: {path} has no such column, it has {listed(names)}.")
    column = prompt_id or ("prompt_id" if "prompt_id" in names else None)
    if column is None and "prompt" not in names:
        raise InputError(
            f"{path} has the columns {listed(names)} and no 'prompt': it is not a completions file of TRL."
        )
    known: dict[str, Id] = {}  # a prompt has many rollouts, and its text may be long
    ids_R: list[Any] = []
    for value in arrow.names(table.column(column or "prompt")):
        try:
            if column is not None:
                ids_R.append(as_id(value))
            elif isinstance(value, str):
                ids_R.append(known[value] if value in known else known.setdefault(value, text_id(value)))
            else:
                ids_R.append(None if value is None else text_id(value))
        except FAULTS:
            ids_R.append(None)
    return ids_R


def _rewards(
    table: Any, path: Path, reading: LogStream, ids_R: Sequence[Any]
) -> tuple[FloatArray, dict[str, FloatArray], dict[str, float]]:
    """The total reward of each row, as asked for or the sum of all reward functions, each with weight 1; the reward of
    each function, and the weights."""
    pa = arrow.pyarrow()
    names, options = list(table.column_names), reading.options
    first = names.index("completion") + 1 if "completion" in names else 0
    last = names.index("advantage") if "advantage" in names else len(names)
    own = _OWN | {options.prompt_id, options.success}
    among = [name for name in names[first:last] if name not in own or name == options.success]
    if options.reward is None:
        number = (pa.types.is_floating, pa.types.is_null)  # null: a function without scores in the batch
        weights = {name: 1.0 for name in among if any(fits(table.schema.field(name).type) for fits in number)}
        if not weights:
            raise InputError(
                f"{path} has the columns {listed(names)}, none of which is a reward. Pass reward= with the name of one."
            )
    else:
        weights = {options.reward: 1.0} if isinstance(options.reward, str) else dict(options.reward)
    for name in names:
        if name not in own and name not in weights:
            reading.notes.unknown(name, len(table))
    scores = {name: _numbers(table, path, "reward", name) for name in weights}
    total_R = weighted(list(scores.values()), list(weights.values()))
    if options.reward is None and len(weights) > 1:
        note = f"reward taken as the sum of {printable(', '.join(weights))}, each with weight 1"
        reading.notes.doubt(note, 1 - reading.notes[note])
        if "advantage" in names:
            with contextlib.suppress(InputError):  # not numbers: no comparison
                _compare(total_R, _numbers(table, path, "advantage", "advantage"), ids_R, reading.notes)
    return total_R, scores, weights


def _compare(rewards_R: FloatArray, advantages_R: FloatArray, ids_R: Sequence[Any], notes: Notes) -> None:
    """Notes prompts whose advantages and rewards have different orders, which means that the run used other weights."""
    _, prompt_R = factorize(ids_R)
    order = np.lexsort((advantages_R, rewards_R, prompt_R))
    more_R, up_R = np.diff(rewards_R[order]), np.diff(advantages_R[order])
    same_R = prompt_R[order][1:] == prompt_R[order][:-1]
    wrong_R = same_R & np.where(more_R > 1e-6, up_R < -1e-4, up_R > 1e-4)
    if wrong := len(np.unique(prompt_R[order][1:][wrong_R])):
        note = "group whose advantages do not follow that sum: give the run's weights as --reward NAME=WEIGHT (reward=)"
        notes.doubt(note, wrong)

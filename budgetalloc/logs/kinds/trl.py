"""The completions that TRL writes with `GRPOConfig(log_completions=True)`: a parquet file per logging step.

`completions/completions_00007.parquet` has a row for each rollout of the last batch before step 7 was logged: step,
prompt, completion, a column for each reward function, what reward functions logged with `log_extra`, and advantage.
With `logging_steps` above 1, only the last batch is logged. If one generation serves several steps, the same rows are
logged again, and the reader takes them once. A step that a resumed run repeats overwrites its file. Tokens are not
logged, so lengths are unknown.

At an evaluation, TRL 1.16 replaces the training's completions of that step by those of the evaluation. The file does
not mark them, but a checkpoint in the same folder shows the steps of evaluations.
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

__all__ = ["files", "find", "rows", "texts"]

_FILE = re.compile(r"completions_(\d{1,15})\.parquet")
_STALE = 3600.0  # seconds of tolerance, because files of one run may be copied in any order
_OWN = {"step", "prompt", "completion", "advantage", "prompt_id"}
_STATE = 1 << 28  # bytes of the largest trainer's state that is read


def find(path: Path) -> list[Path]:
    """A file of completions, a folder of them, or the folder `completions` in a trainer's output folder."""
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
    """The rollouts of each file. A batch that was logged twice is read once. Evaluations are left out."""
    notes, before, newest = reading.notes, None, 0.0
    paths = files(reading.location)
    evaluated = _evaluated(reading.location)
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
    if not evaluated:
        note = "row of a prompt that occurs at regular steps only: is it from evaluations?"
        notes.doubt(note, regular.suspects(len(paths)))
    steps = [step for path in paths if (step := _step(path)) is not None]
    if reading.location.is_dir() and (missing := max(steps, default=0) - len(steps)) > 0:
        notes.missing = missing, max(steps)
        notes["step without a file (logging_steps=1 logs every step)"] += missing


def texts(reading: LogStream, ids: Iterable[Id]) -> dict[Id, str]:
    """The texts of these prompts. Files are read until all are known. Unreadable files are skipped."""
    wanted, known = set(ids), dict[Id, str]()
    for path in files(reading.location):
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
    """The steps of evaluations in the trainer's last checkpoint; none if there is no checkpoint."""
    folder = path.parent.parent if path.is_file() else path.parent
    states = (folder / "trainer_state.json", *folder.glob("checkpoint-*/trainer_state.json"))
    last = max((x for x in states if x.is_file()), key=lambda x: x.stat().st_mtime, default=None)
    evaluated: set[int] = set()
    with contextlib.suppress(OSError, *FAULTS):
        if last is not None and last.stat().st_size <= _STATE:
            for entry in json.loads(last.read_bytes())["log_history"]:
                if any(key.startswith("eval_") for key in entry):
                    evaluated.add(as_integer(entry["step"]))
    return evaluated


class _Regular:
    """Finds prompts that occur in exactly every k-th file, k > 1, as prompts of evaluations do."""

    def __init__(self) -> None:
        self.files = 0
        self.seen: dict[Id, list[int]] = {}  # the files of each prompt
        self.rows: Counter[Id] = Counter()

    def add(self, part: Rows) -> None:
        for name, rows in Counter(part.ids_R).items():
            self.seen.setdefault(name, []).append(self.files)
            self.rows[name] += rows
        self.files += 1

    def suspects(self, files: int) -> int:
        """The rows of such prompts, if two of them have the same files from start to end and most prompts do not."""
        rhythm_of: dict[Id, tuple[int, int]] = {}  # the first file and the distance
        lasting: Counter[tuple[int, int]] = Counter()
        for name, seen in self.seen.items():
            if len(seen) > 2 and len(apart := set(np.diff(seen).tolist())) == 1:
                first, distance = rhythm_of[name] = seen[0], apart.pop()
                if distance > 1 and first < 2 * distance and seen[-1] + distance >= files:
                    lasting[first, distance] += 1
        suspects = sum(self.rows[name] for name, rhythm in rhythm_of.items() if lasting[rhythm] > 1)
        return suspects if 2 * suspects < self.rows.total() else 0


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
    reading.notes.note("row without a prompt", int((~named_R).sum()))
    kept = np.flatnonzero(named_R).tolist()
    part = Rows(np.full(len(kept), step), [ids_R[at] for at in kept], rewards_R[named_R])
    if success_R is not None:
        part = replace(part, success_R=success_R[named_R])
    return part, table.column("completion") if "completion" in names else None


def _numbers(table: Any, path: Path, argument: str, name: str) -> FloatArray:
    """A column as floats, NaN where there is none; raises `InputError` if the file lacks it or holds no numbers."""
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
    """The id of each row's prompt, None where it has none. Without a column of ids, the text or messages are hashed."""
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
    """The total reward of each row, the reward of each function, and the weights of the functions (default: 1)."""
    pa = arrow.pyarrow()
    names, options = list(table.column_names), reading.options
    first = names.index("completion") + 1 if "completion" in names else 0
    last = names.index("advantage") if "advantage" in names else len(names)
    own = _OWN | {options.prompt_id, options.success}
    among = [name for name in names[first:last] if name not in own or name == options.success]
    if options.reward is None:
        number = (pa.types.is_floating, pa.types.is_null)  # null: a function that scored nothing in the batch
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
            with contextlib.suppress(InputError):  # advantages that are not numbers
                _compare(total_R, _numbers(table, path, "advantage", "advantage"), ids_R, reading.notes)
    return total_R, scores, weights


def _compare(rewards_R: FloatArray, advantages_R: FloatArray, ids_R: Sequence[Any], notes: Notes) -> None:
    """Notes prompts whose advantages are not in the order of the rewards, because the run used other weights."""
    _, prompt_R = factorize(ids_R)
    order = np.lexsort((advantages_R, rewards_R, prompt_R))
    more_R, up_R = np.diff(rewards_R[order]), np.diff(advantages_R[order])
    same_R = prompt_R[order][1:] == prompt_R[order][:-1]
    wrong_R = same_R & np.where(more_R > 1e-6, up_R < -1e-4, up_R > 1e-4)
    if wrong := len(np.unique(prompt_R[order][1:][wrong_R])):
        note = "group whose advantages do not follow that sum: give the run's weights as --reward NAME=WEIGHT (reward=)"
        notes.doubt(note, wrong)

"""Detection and opening of logs. Each kind of log is a module of `budgetalloc.logs.kinds` (see `Kind`)."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.rewards import check_range
from budgetalloc.errors import InputError, check_choice, check_integer, check_number
from budgetalloc.logs.chunk import Chunk, Reward, columns_of
from budgetalloc.logs.kinds import counts, dataset, ledger, nemo_gym, prime_rl, tinker, trl, verifiers, verl, wandb_run
from budgetalloc.logs.log_stream import Kind, LogStream, ReadOptions, unreadable

__all__ = ["KINDS", "MODULES", "open_log", "read_all"]

MODULES: dict[str, Kind] = {
    "ledger": ledger,
    "trl": trl,
    "verl": verl,
    "prime-rl": prime_rl,
    "verifiers": verifiers,
    "tinker": tinker,
    "nemo-gym": nemo_gym,
    "wandb": wandb_run,
    "dataset": dataset,
    "counts": counts,
}
KINDS = tuple(MODULES)
"""Names of the kinds of logs, in the order in which errors list them."""


def open_log(
    source: Any,
    *,
    kind: str | None = None,
    prompt_id: str | None = None,
    reward: Reward = None,
    success: str | None = None,
    reward_range: tuple[float, float] | None = None,
    chunk: int = ReadOptions.chunk,
    max_line: int = ReadOptions.max_line,
    max_row: int = ReadOptions.max_row,
    max_step: int = ReadOptions.max_step,
) -> LogStream:
    """Opens a log of rollouts in any supported format. Opening reads just enough to identify the kind of log.

    Args:
        source: A file, a folder that holds one log, or a `datasets.Dataset`.
        kind: The kind of log, one of `KINDS`; None detects it.
        prompt_id: The column that names prompts, or several columns, separated by commas. None: a column 'prompt_id' if
            there is one, else the default of the kind, such as the hash of the prompt's text that the TRL callback
            computes.
        reward: The column that holds the reward, or the weights of several columns, whose weighted sum is the reward.
            None: the default of the kind. Several reward functions of TRL then have weight 1, which a note reports.
        success: The column that holds success in [0, 1], such as the name of a reward function. None: a ledger's own
            success. For several reward functions of TRL, those that gave 0 and 1 only, as the callback chooses; if that
            does not decide it, a note asks. In other logs, the reward.
        reward_range: Lowest and highest reward, mapped to 0 and 1. None leaves rewards unchanged. In both cases a note
            counts rewards outside.
        chunk: Rollouts to hold in memory at a time, or one step if it has more.
        max_line: Bytes of a line, a header or a cell (a table of W&B: 16 times that). Longer ones are skipped and
            counted. The columns to read of a parquet row group, or of a file of TRL, may take 16 times that in memory;
            larger ones are an error.
        max_row: Rollouts that one row may stand for. Rows of more are skipped and counted.
        max_step: Rollouts of one step, which are held in memory together.

    Raises:
        InputError: there is no log, there are several (the text lists them), or an argument is out of range. The
            iteration raises it if the file cannot be read or lacks the columns.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "counts.csv")
    ...     _ = file.write_text("step,prompt_id,successes,rollouts,comment\\n0,a,1,4,\\n0,b,4,4,\\n1,a,x,4,\\n")
    ...     log = open_log(file)
    ...     chunks = list(log)
    >>> log.kind, len(chunks[0].ids_R), chunks[0].rewards_R.mean()
    ('counts', 8, np.float64(0.625))
    >>> sorted(log.notes.items())
    [('broken row', 1), ('length unknown', 8), ("unknown column 'comment'", 3)]
    """
    if kind is not None:
        check_choice("kind", kind, KINDS)
    options = ReadOptions(
        _name("prompt_id", prompt_id),
        _weights(reward),
        _name("success", success),
        None if reward_range is None else check_range(reward_range),
        check_integer("chunk", chunk, 1),
        check_integer("max_line", max_line, 1),
        check_integer("max_row", max_row, 1),
        check_integer("max_step", max_step, 1),
    )
    if isinstance(source, (str, os.PathLike)):
        try:
            kind, log = _only(Path(source), kind)
            return LogStream(kind, MODULES[kind], log, options)
        except OSError as error:
            raise unreadable(source, error) from error
    if not hasattr(source, "column_names"):
        raise InputError(
            f"source is a {type(source).__name__}: give the path of a file or folder, or a datasets.Dataset."
        )
    return LogStream("dataset", MODULES["dataset"], source, options)


def _name(argument: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise InputError(f"{argument}={value!r}: give the name of a column.")


def _weights(reward: Any) -> Reward:
    if isinstance(reward, Mapping) and reward and all(isinstance(x, str) for x in reward):
        return {name: check_number(f"reward[{name!r}]", x, -math.inf, math.inf) for name, x in reward.items()}
    if reward is None or isinstance(reward, str):
        return reward
    raise InputError(
        f"reward={reward!r}: give the name of a column, or a weight for each of several, as {{name: 1.0}}."
    )


def read_all(reading: LogStream) -> Chunk:
    """All chunks of a log as one. Equal ids are one object."""
    chunks = list(reading)
    same: dict[Id, Id] = {}
    return Chunk(
        ids_R=[same.setdefault(name, name) for x in chunks for name in x.ids_R],
        broken=reading.notes["broken row"],
        reward_range=chunks[-1].reward_range if chunks else reading.options.reward_range and (0.0, 1.0),
        **columns_of(chunks),
    )


def _only(path: Path, kind: str | None) -> tuple[str, Path]:
    """The one log at this path, and its kind."""
    if "\0" in str(path) or not path.exists():
        raise InputError(f"source={str(path)!r}: there is no such file or folder.")
    if not (path.is_file() or path.is_dir()):
        raise InputError(
            f"source={str(path)!r} is a pipe, a socket or a device. A log is read more than once: copy it into a file."
        )
    if kind and path.is_file():
        return kind, path
    logs = [(name, log) for name in ([kind] if kind else KINDS) for log in MODULES[name].find(path)]
    if len(logs) == 1:
        return logs[0]
    if not logs:
        what = f"a log of kind {kind!r}" if kind else f"a log of a known kind ({', '.join(KINDS)})"
        raise InputError(
            f"source={str(path)!r} does not contain {what}. Give the file or folder that the trainer wrote its "
            "rollouts to, such as the folder 'completions' of TRL (log_completions=True)."
        )
    choices = "\n".join(f"  {log}  (kind={name!r})" for name, log in logs)
    raise InputError(f"source={str(path)!r} holds {len(logs)} logs. Give one of them, or kind=:\n{choices}")

"""`Ledger`, the rollouts of a run as a frame."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from budgetalloc.beliefs.ids import Id, check_ids
from budgetalloc.beliefs.rewards import check_range, to_unit
from budgetalloc.errors import (
    InputError,
    check_array,
    check_number,
    check_type,
    import_optional,
    keywords,
    printable,
)
from budgetalloc.logs.records import Notes

if TYPE_CHECKING:
    import pandas as pd

_log = logging.getLogger(__name__)
COLUMNS = ("step", "prompt", "reward", "success", "length", "predicted", "cost", "domain")
"""The columns of a ledger."""
_MORE = ("trainer_step", "group")  # those of some ledgers


@dataclass(frozen=True, eq=False, repr=False)
class Ledger:
    """The rollouts of a run: a pandas frame with one row for each rollout, in the order of the
    steps.

    The columns are `step` (of the policy), `prompt` (an int or str), `reward` (in the log's own
    units), `success` (in [0, 1], unless rewards lie outside and their range is unknown), `length`
    (tokens), `predicted` (the success rate that was predicted before the step), `cost` and
    `domain`. Unknown values are NaN. The rollouts of a prompt in one step are a group; if a trainer
    made several groups of one prompt, as TRL does of rows with equal prompts, the column `group`
    numbers them. A log in which a step of the trainer has several decisions has `trainer_step` too.

    `Ledger.read` reads a log, and `Ledger.of_frame` takes a frame.
    """

    frame: "pd.DataFrame"
    reward_range: tuple[float, float] | None = None
    """Lowest and highest reward, None where unknown."""
    kind: str = "ledger"
    """The kind of log."""
    path: Path | None = None
    """The file or folder that was read."""
    notes: Notes = field(default_factory=Notes)
    """What was left out or assumed, and how often."""
    texts: Mapping[Id, str] = field(default_factory=dict)
    """The beginnings of the prompts' texts, where the log has them."""
    domains: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Of a run with `domain=`: by domain how many rollouts were `requested`, `came` and were
    `trained` on, and the means `success`, `tokens`, `cost`, `age` and `lag`, as far as known."""

    @classmethod
    @keywords
    def read(
        cls,
        source: Any,
        *,
        step: str | None = None,
        prompt: str | None = None,
        reward: str | Mapping[str, float] | None = None,
        success: str | None = None,
        length: str | None = None,
        reward_range: tuple[float, float] | None = None,
    ) -> "Ledger":
        """Reads a finished run in any supported format, such as a ledger, TRL's completions or a
        CSV file.

        You need no argument if the columns have usual names. In any other table, name the columns
        of steps, prompts and rewards. Steps that a resumed run repeated are read once. One logged
        warning lists what was left out or assumed. Ten million rollouts need some gigabytes of
        memory.

        Args:
            source: A file, a folder that holds one log, or a `datasets.Dataset`.
            step: The column of steps.
            prompt: The column that names prompts, or several columns, separated by commas. Default:
                'prompt_id' and similar names, else a hash of the prompt's text as the TRL callback
                computes it.
            reward: The column of the reward, or the weights of several columns, whose weighted sum
                is the reward.
            success: The column of success in [0, 1], such as the name of a reward function.
                Default: a ledger's own success; of several reward functions of TRL the one that
                gave both 0 and 1; else the reward.
            length: The column of lengths in tokens.
            reward_range: Lowest and highest reward, mapped to 0 and 1. Default: rewards are
                unchanged.

        Raises:
            InputError: there is no log, there are several (the text lists them), or the columns are
                not known (the text lists them).
            UnsupportedError: pandas or pyarrow is not installed.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "mine.csv")
        ...     _ = file.write_text("update,task,points\\n0,a,1\\n0,a,0\\n1,b,1\\n")
        ...     Ledger.read(file, step="update", prompt="task", reward="points")
        Ledger(3 rollouts of 2 prompts in 2 steps)
        """
        columns = {"step": step, "prompt": prompt, "success": success, "length": length}
        ledger = read_log(source, reward=reward, reward_range=reward_range, **columns)
        if ledger.notes:
            said = "; ".join(f"{text}: {count}" for text, count in ledger.notes.items())
            name = f"{ledger.path or type(source).__name__} ({ledger.kind})"
            _log.warning("%s", printable(f"{name}: {said}"))
        return ledger

    @classmethod
    def of_frame(
        cls,
        frame: "pd.DataFrame",
        *,
        step: str = "step",
        prompt: str = "prompt",
        reward: str = "reward",
        length: str = "length",
        reward_range: tuple[float, float] | None = None,
    ) -> "Ledger":
        """A ledger from a frame of your own, one row for each rollout.

        Args:
            frame: Columns of steps, prompts (an int or str each) and rewards, and any other of the
                ledger's columns. Other columns are left out.
            step, prompt, reward, length: The names of these columns.
            reward_range: Lowest and highest reward. Without a column `success`, the rewards mapped
                by this range are the success.

        Raises:
            InputError: a column is missing, or it holds other values.

        >>> import pandas as pd
        >>> columns = {"step": [0, 0, 1], "prompt": ["a", "b", "a"], "reward": [-1, 0, 3]}
        >>> ledger = Ledger.of_frame(pd.DataFrame(columns))
        >>> ledger, ledger.frame.success.tolist()
        (Ledger(3 rollouts of 2 prompts in 2 steps), [-1.0, 0.0, 3.0])
        """
        pd = _pandas()
        check_type("frame", frame, pd.DataFrame, "a pandas frame with a row for each rollout")
        for argument, name in (("step", step), ("prompt", prompt), ("reward", reward)):
            if name not in frame.columns:
                raise InputError(
                    f"{argument}={name!r}: the frame has no such column, it has "
                    f"{list(frame.columns)}.",
                    argument=argument,
                )
        known = None if reward_range is None else check_range(reward_range)
        renamed = frame.rename(
            columns={step: "step", prompt: "prompt", reward: "reward", length: "length"}
        )
        rows = renamed.loc[:, renamed.columns.isin([*COLUMNS, *_MORE])].copy()
        for name in rows.columns.drop(["prompt", "domain"], errors="ignore"):
            rows[name] = check_array(name, rows[name].to_numpy(), "one number per rollout")
        wrong = rows["step"][rows["step"] % 1 != 0]
        if len(wrong):
            raise InputError(f"{step} holds {wrong.iloc[0]}: give one integer for each rollout.")
        ids = check_ids(rows["prompt"].tolist(), "prompt")
        rows["prompt"] = pd.Series(ids, dtype=object, index=rows.index)
        if "success" not in rows:
            unit_R = to_unit(rows["reward"], known or (0.0, 1.0))
            rows["success"] = unit_R if known is None else np.clip(unit_R, 0.0, 1.0)
        if "length" in rows:
            rows["length"] = rows["length"].where(rows["length"] >= 0)
        return cls(_normal(rows.sort_values("step", kind="stable")), known)

    def __len__(self) -> int:
        return len(self.frame)

    def __repr__(self) -> str:
        prompts, steps = self.frame["prompt"].nunique(), self.frame["step"].nunique()
        return f"Ledger({len(self):,} rollouts of {prompts:,} prompts in {steps:,} steps)"


def read_log(
    source: Any,
    *,
    reward: Any = None,
    reward_range: tuple[float, float] | None = None,
    **columns: str | None,
) -> Ledger:
    """`Ledger.read` for callers that show the notes themselves: it logs nothing."""
    _pandas()
    from budgetalloc.logs.cells import Asked
    from budgetalloc.logs.reader import read, with_success

    for name, value in columns.items():
        if value is not None:
            check_type(name, value, str, "the name of a column")
    asked = Asked(reward=_weights(reward), **columns)
    given = None if reward_range is None else check_range(reward_range)
    notes = Notes()
    log, rows, texts = read(source, asked, notes)
    domains = rows.attrs.get("domains", {})
    rows, known = with_success(rows, given, notes)
    return Ledger(_normal(rows), known, log.kind, log.place, notes, texts, domains)


def _pandas() -> Any:
    return import_optional("pandas", "ba.Ledger", "logs")


def _normal(rows: Any) -> Any:
    more = [name for name in _MORE if name in rows]
    types: dict[str, Any] = dict.fromkeys(COLUMNS, np.float64)
    types |= {"step": np.int64, "prompt": object, "domain": object}
    types |= {"group": np.int64} if "group" in more else {}
    if hasattr(rows["prompt"], "cat"):  # pandas would refuse lone surrogates
        ids = rows["prompt"].cat.categories.to_numpy(dtype=object)[rows["prompt"].cat.codes]
        rows = rows.assign(prompt=type(rows["prompt"])(ids, rows.index, dtype=object))
    return rows.reindex(columns=[*COLUMNS, *more]).astype(types).reset_index(drop=True)


def _weights(reward: Any) -> Any:
    if isinstance(reward, Mapping) and reward and all(isinstance(x, str) for x in reward):
        return {
            name: check_number(f"reward[{name!r}]", x, -np.inf, np.inf)
            for name, x in reward.items()
        }
    if reward is None or isinstance(reward, str):
        return reward
    raise InputError(
        "reward",
        "give the name of a column, or a weight for each of several, as {name: 1.0}.",
        reward,
    )

"""The kinds of logs: how each is told from the others by its columns, and a function that makes a
table of its rows, with columns that `table` knows by name.

Environments. `verifiers` has three shapes: an episode with its traces (since 0.4), a trace (older
prime-rl), and a flat row with example_id and reward (before 0.4). An evaluation has no training
steps: its rollouts are at step 0. prime-rl writes the same records, into a folder for each step or
into one stream. tinker-cookbook has a line for each rollout, NeMo Gym a line for each task with its
rollouts' rewards.
"""

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from budgetalloc.beliefs.ids import text_id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import check_range, to_unit
from budgetalloc.errors import InputError
from budgetalloc.logs import completions
from budgetalloc.logs.cells import OWN, Asked, each, numbers, of_type, records, replaced
from budgetalloc.logs.records import FAULTS, Notes, Record, as_id, as_integer
from budgetalloc.logs.table import columns_of

_LEDGER = ("step", "id", "reward", "length", "predicted", "count")
_MARKS = ("resumed", "reward_range")  # a line with one of these keys is not a rollout
_COUNTS = ("requested", "came", "scored", "trained")  # of a domain's rollouts
_MEANS = {"success": "scored", "tokens": "came", "cost": "came", "age": "trained", "lag": "trained"}
_TINKER = ("split", "iteration", "group_idx", "total_reward", "steps")
_SECOND_RUN = (
    "row of an earlier run in the same file, left out because a later run began anew "
    "(use a ledger for each run)"
)
_UNNAMED = (
    "row without its prompt: each group of an iteration is taken as a prompt of its own, give "
    "prompt="
)
_STEP = re.compile(r"(?:step|iteration)_(\d{1,15})")
_Made = tuple[pd.DataFrame, Asked]
_Table = Callable[[pd.DataFrame, Asked, Path, Notes], _Made]


def kind_of(frame: pd.DataFrame | None, path: Path, asked: Asked) -> str | None:
    """The kind of log whose first rows these are; None if it is unknown."""
    if frame is None:
        return None
    names, some = set(map(str, frame.columns)), list(records(frame.head(3)))
    if names >= {*_LEDGER} or names >= {"step", "domain", "requested"} or names <= {*_MARKS}:
        return "ledger"
    if completions.fits(names, path):
        return "trl"
    if names >= {"input", "output", "score"}:
        return "verl"
    if any(map(_is_trace, some)):
        training = path.name.startswith("train_rollouts") or any(map(_of_training, some))
        return "prime-rl" if training else "verifiers"
    if names >= {*_TINKER} and "train" in frame["split"].head(3).tolist():
        return "tinker"
    if any(map(_is_profile, some)):
        return "nemo-gym"
    if names >= {"group_index", "reward", "messages"} and path.stem.isdecimal():
        return "art"
    return "table" if columns_of(frame, asked) else None


def _ledger(frame: pd.DataFrame, asked: Asked, path: Path, notes: Notes) -> _Made:
    """The rows that count: a line that resumes from a step voids the rows before it of this and of
    later steps. A line with a range belongs to the rows after it. A line with a domain and no id
    has sums over rollouts."""
    for argument, own in (("reward", asked.reward), ("success", asked.success)):
        if own not in (None, argument):
            raise InputError(
                f"{argument}={own!r}: {path} is a ledger, which has one reward and one success. "
                f"Leave out {argument}=.",
                argument=argument,
            )
    frame = frame.reindex(columns=dict.fromkeys([*frame.columns, *_LEDGER, *_MARKS, "domain"]))
    resumed_R = pd.Series(_marks(frame["resumed"], as_integer, 1)[:, 0])
    low_R, high_R = _marks(frame["reward_range"], check_range, 2).T
    sums_R = frame["domain"].notna() & frame["id"].isna()
    mark_R = ~np.isnan(resumed_R) | ~np.isnan(low_R) | sums_R
    step_R = pd.Series(numbers(frame["step"])[0])
    limit_R = resumed_R[::-1].cummin().ffill()[::-1].fillna(math.inf)
    void_R = ~mark_R & (step_R >= limit_R)
    start = step_R[~mark_R].min() if (~mark_R).any() else 0.0
    notes.doubt(_SECOND_RUN, (void_R & (limit_R <= start)).sum())
    notes.note("row voided by a resume", (void_R & (limit_R > start)).sum())
    table = frame.drop(columns=[*_MARKS, "count", "id"]).assign(prompt_id=frame["id"])
    table[OWN + "size"], _ = numbers(frame["count"])  # of the rollout's group
    # a row whose step is a flag, or without a length, is broken
    table["step"] = replaced(frame["step"], of_type(frame["step"], bool), "none")
    if "decision" in frame:
        table["step"] = replaced(frame["decision"], ~_has(frame["decision"]), table["step"])
        table = table.drop(columns="decision")
        if (numbers(table["step"])[0] != step_R)[~mark_R].any():
            table["trainer_step"] = step_R.to_numpy()
    known = pd.DataFrame({"low": low_R, "high": high_R}).dropna()
    # otherwise success follows from the reward and the range
    if "success" in frame or len(known.drop_duplicates()) > 1:
        reward_R, _ = numbers(frame["reward"])
        low_R, high_R = (pd.Series(x).ffill().to_numpy() for x in (low_R, high_R))
        mapped_R = np.clip(to_unit(reward_R, (low_R, high_R)), 0.0, 1.0)
        mapped_R = np.where(np.isnan(low_R), to_unit(reward_R, (0.0, 1.0)), mapped_R)
        own = frame.get("success", pd.Series(np.nan, frame.index))
        table["success"] = replaced(own, ~_has(own), pd.Series(mapped_R, frame.index))
        asked = replace(asked, success="success")
    table = table[~(mark_R | void_R).to_numpy()]
    table["length"] = replaced(table["length"], table["length"].isna(), "none")
    table.attrs["reward_range"] = tuple(known.iloc[-1].tolist()) if len(known) else None
    table.attrs["domains"] = _domains(frame[sums_R & ~(step_R >= limit_R)])
    return table, replace(asked, prompt="prompt_id", reward="reward", step=None, length=None)


def _domains(lines: pd.DataFrame) -> dict[str, dict[str, float]]:
    """The known figures of each domain from the sums in these lines."""
    cells = lines.reindex(columns=["domain", *_COUNTS, *_MEANS])
    sums = pd.DataFrame({key: numbers(cells[key])[0] for key in (*_COUNTS, *_MEANS)}, cells.index)
    figures = sums.groupby(cells["domain"].map(str), sort=False).sum(min_count=1)
    figures = figures.fillna(dict.fromkeys(_COUNTS, 0.0))
    for key, count in _MEANS.items():
        figures[key] /= figures[count]
    known: dict[str, dict[str, float]]
    known = figures.drop(columns="scored").dropna(axis=1, how="all").to_dict("index")
    return known


def _marks(cells: pd.Series, read: Callable[[Any], Any], size: int) -> FloatArray:
    """The numbers, so many, that `read` makes of each cell; NaN where it can read nothing."""
    found = np.full((len(cells), size), math.nan)
    for at in np.flatnonzero(cells.notna()):
        with contextlib.suppress(*FAULTS):
            found[at] = read(cells.iloc[at])
    return found


def _has(cells: pd.Series) -> pd.Series:
    """Which records have the key: a missing key is NaN, and null is None."""
    return cells.notna() | (of_type(cells, type(None)) & (cells.dtype == object))


def _verl(frame: pd.DataFrame, asked: Asked, path: Path, notes: Notes) -> _Made:
    """The rollouts that verl dumps with `trainer.rollout_data_dir`: a file 7.jsonl for step 7."""
    number = int(path.stem) if path.stem.isdecimal() else 0
    step = frame.get("step", pd.Series(np.nan, frame.index))
    table = frame.assign(step=replaced(step, step.isna(), number))
    table = table.drop(columns=["output", "gts"], errors="ignore")
    return table, replace(asked, reward=asked.reward or "score")


def _read(
    frame: pd.DataFrame, read: Callable[[Record], Iterator[Record]], asked: Asked, notes: Notes
) -> _Made:
    """A table of the rollouts that `read` makes of each record. A record that it cannot read is
    broken."""
    found: list[Record] = []
    for record in records(frame):
        try:
            found += list(read(record))
        except FAULTS:
            notes["broken row"] += 1
    success = "success" if asked.success else None
    columns = ["step", "prompt_id", "prompt", "reward", "length", *filter(None, [success])]
    return pd.DataFrame(found, columns=columns, dtype=object), Asked(success=success)


def _step_of(path: Path) -> int | None:
    """The step in the name of a file's folder."""
    found = [match for name in path.parts[-4:-1] if (match := _STEP.fullmatch(name))]
    return int(found[-1][1]) if found else None


def _get(record: Any, *keys: str) -> Any:
    for key in keys:
        record = record.get(key) if isinstance(record, dict) else None
    return record


def _of_any(name: str, *places: Any) -> Any:
    """The id by this name in the first place that has it."""
    return as_id(next((x[name] for x in places if isinstance(x, dict) and name in x), None))


def _weights(reward: str | Mapping[str, float]) -> Mapping[str, float]:
    return {reward: 1.0} if isinstance(reward, str) else reward


def _sum(values: Mapping[str, Any], weights: Mapping[str, float]) -> float:
    """The weighted sum of named values, NaN if the record has none of them."""
    known = {name: values[name] for name in weights if values.get(name) is not None}
    scores = [
        weights[name] * float(x["score"] if isinstance(x, dict) else x) for name, x in known.items()
    ]
    return sum(scores) if scores else math.nan


def _is_trace(record: Record) -> bool:
    """Whether a record has one of the three shapes of `verifiers`."""
    flat = "reward" in record and "example_id" in record and "prompt" in record
    episode = isinstance(record.get("traces"), list)
    return flat or ("task" in record and (episode or ("rewards" in record and "nodes" in record)))


def _of_training(record: Record) -> bool:
    """Whether a trainer wrote the record, rather than a separate evaluation."""
    traces = record.get("traces") or [record]
    kinds = [_get(trace, "info", "kind") for trace in traces] if isinstance(traces, list) else []
    in_run = _get(record, "run", "type") == "train"
    return in_run or any(kinds) or _get(record, "info", "prime_rl") is not None


def _verifiers(
    frame: pd.DataFrame, asked: Asked, path: Path, notes: Notes, training: bool = False
) -> _Made:
    """The rollouts of `verifiers` and prime-rl; of a training, without those of evaluations."""
    folder = _step_of(path) if training else None

    def read(record: Record) -> Iterator[Record]:
        if not _is_trace(record):
            raise KeyError("no record of a rollout")
        every = record.get("traces", [record])
        # traces of judges and other frozen models are not rollouts of the trained model
        traces = [x for x in every if _get(x, "agent", "trainable") is not False]
        notes.note("trace of a model that is not trained", len(every) - len(traces))
        work = _get(record, "run", "work") or {}
        for trace in traces or [{}]:
            info = trace.get("info") if isinstance(trace.get("info"), dict) else {}
            kind = info.get("kind") or work.get("type") or record.get("kind")
            if training and kind == "eval":
                notes["row of an evaluation"] += 1
                continue
            # the step of arrival comes first, because the trainer learns the reward then
            steps = (
                folder,
                _get(info, "arrival", "step"),
                work.get("step"),
                _get(info, "prime_rl", "step"),
                0,
            )
            rollout: Record = {"step": as_integer(next(x for x in steps if x is not None))}
            rollout |= {"prompt_id": _task(trace, record, asked.prompt), "length": _length(trace)}
            if asked.success:
                rollout["success"] = _reward(trace, asked.success)
            yield rollout | {"reward": _reward(trace, asked.reward)}

    return _read(frame, read, asked, notes)


def _task(trace: Record, record: Record, prompt: str | None) -> Any:
    """The task's key or hash, else its number in the environment, else a hash of the prompt."""
    task = record.get("task") or trace.get("task")
    own = task if isinstance(task, dict) else {}
    data = own.get("data") or {}
    if prompt is not None:
        return _of_any(prompt, record, trace, data, record.get("info"))
    if key := own.get("key") or own.get("hash"):
        return as_id(key)
    env = record.get("env_name") or record.get("env_id") or _get(record, "env", "id") or task
    number = record.get("example_id", data.get("idx", own.get("idx")))
    if number is not None:
        return f"{env}/{as_id(number)}" if isinstance(env, str) else as_id(number)
    return text_id(data.get("prompt") or record["prompt"])


def _reward(trace: Record, reward: str | Mapping[str, float] | None) -> float:
    """The reward that the user named, else the record's reward, else the weighted sum of its
    rewards; NaN if none."""
    if trace.get("error") and "example_id" in trace:
        return math.nan  # the reward 0 of a flat row that raised is not a score
    named = {key: x for key, x in (trace.get("rewards") or {}).items() if x is not None}
    if reward is not None:
        return _sum({**trace, **(trace.get("metrics") or {}), **named}, _weights(reward))
    if isinstance(trace.get("reward"), (int, float)):
        return float(trace["reward"])
    weights = {
        key: float(x.get("weight", 1.0)) if isinstance(x, dict) else 1.0 for key, x in named.items()
    }
    return _sum(named, weights)


def _length(trace: Record) -> int | None:
    """Tokens that the model generated, None if unknown."""
    nodes = [x for x in trace.get("nodes") or () if x.get("sampled")]
    places = (
        trace.get("num_output_tokens"),
        _get(trace, "token_usage", "output_tokens"),
        sum(len(x.get("token_ids") or ()) for x in nodes),
        sum(_get(x, "usage", "completion_tokens") or 0 for x in trace.get("calls") or ()),
    )
    return next((as_integer(x) for x in places if x), None)


def _tinker(frame: pd.DataFrame, asked: Asked, path: Path, notes: Notes) -> _Made:
    """The rollouts of tinker-cookbook. Prompts are hashes of the messages of `ProblemEnv`."""
    folder, weights = _step_of(path), _weights(asked.reward or "total_reward")

    def read(record: Record) -> Iterator[Record]:
        if record["split"] != "train":
            notes["row of an evaluation"] += 1
            return
        values: Record = {}
        for step in record["steps"]:
            values |= (step.get("logs") or {}) | (step.get("metrics") or {})
        values |= record.get("trajectory_metrics") or {}
        values |= {key: x for key, x in record.items() if key != "steps"}
        step = as_integer(record["iteration"] if folder is None else folder)
        rollout: Record = {"step": step, "reward": _sum(values, weights)}
        messages = _get((record["steps"] or [{}])[0], "trace", "prompt", "messages")
        if asked.prompt is not None:
            rollout["prompt_id"] = as_id(values[asked.prompt])
        elif isinstance(messages, list) and messages:
            rollout |= {"prompt_id": text_id(messages), "prompt": messages}
        else:
            notes.doubt(_UNNAMED)
            rollout["prompt_id"] = f"{step}/{as_integer(record['group_idx'])}"
        lengths = [step.get("ac_len") for step in record["steps"]]
        rollout["length"] = None if None in lengths else sum(map(as_integer, lengths)) or None
        if asked.success:
            rollout["success"] = _sum(values, {asked.success: 1.0})
        yield rollout

    return _read(frame, read, asked, notes)


def _is_profile(record: Record) -> bool:
    return "mean/reward" in record and isinstance(record.get("sample"), dict)


def _nemo_gym(frame: pd.DataFrame, asked: Asked, path: Path, notes: Notes) -> _Made:
    """The rollouts of the tasks of a profile of NeMo Gym."""
    weights = _weights(asked.reward or "reward")

    def read(record: Record) -> Iterator[Record]:
        if not _is_profile(record):
            raise KeyError("no task of a profile")
        sample, rollouts = record["sample"], record.get("rollout_infos")
        if rollouts is None:
            notes.doubt("row without the rewards of its rollouts (rollout_infos)")
            return
        messages = _get(sample, "responses_create_params", "input")
        if asked.prompt is not None or "prompt_id" in sample:
            name = asked.prompt or "prompt_id"
            prompt = _of_any(name, sample, sample.get("verifier_metadata"), record)
        else:
            prompt = text_id(messages) if messages else as_id(record["_ng_task_index"])
        for values in rollouts:
            rollout = {"step": 0, "prompt_id": prompt, "prompt": messages}
            rollout |= {"reward": _sum(values, weights)}
            rollout |= {"length": as_integer(values.get("output_tokens") or -1)}
            if asked.success:
                rollout["success"] = _sum(values, {asked.success: 1.0})
            yield rollout

    notes["no steps: a profile is taken as one step"] = 1
    return _read(frame, read, asked, notes)


def _art(frame: pd.DataFrame, asked: Asked, path: Path, notes: Notes) -> _Made:
    """The rollouts of ART: a file 0007.parquet for step 7. Groups are numbered anew in each, so
    the messages before the model's first one name the prompt."""

    def asked_of(messages: Any) -> Any:
        try:
            own = [x.get("trainable") or x["role"] == "assistant" for x in messages]
            turns = messages[: [*own, True].index(True)]
            return [{"role": x["role"], "content": x["content"]} for x in turns] or None
        except FAULTS:
            return None

    names = [Path(name).stem for name in frame[OWN + "file"].cat.categories]
    steps = [int(name) if name.isdecimal() else 0 for name in names]
    table = frame.assign(step=np.array(steps)[frame[OWN + "file"].cat.codes])
    table["prompt"] = each(frame["messages"], asked_of)
    return table.drop(columns=["messages", OWN + "file"]), asked


TABLES: dict[str, _Table] = {
    "ledger": _ledger,
    "trl": completions.table,
    "verl": _verl,
    "prime-rl": partial(_verifiers, training=True),
    "verifiers": _verifiers,
    "tinker": _tinker,
    "nemo-gym": _nemo_gym,
    "art": _art,
    "table": lambda frame, asked, path, notes: (frame, asked),
}
"""For each kind a function from the rows of a file, and the columns that the user named, to a
table and the columns to use in it."""

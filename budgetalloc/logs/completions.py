"""The completions that TRL writes with `GRPOConfig(log_completions=True)`: a file for each logging
step.

`completions/completions_00007.parquet` has a row for each rollout of the last batch before step 7
was logged: step, prompt, completion, a column for each reward function, what reward functions
logged with `log_extra`, and advantage. W&B keeps the same tables as JSON. With `logging_steps`
above 1, only the last batch is logged. If one generation serves several steps, the same rows are
logged again, and are taken once. Tokens are not logged, so lengths are unknown.

At an evaluation, TRL 1.16 replaces the training's completions of that step by those of the
evaluation. The file does not mark them, but a checkpoint in the same folder shows the steps of
evaluations.
"""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError, printable
from budgetalloc.logs.cells import Asked, hashed, is_numeric, numbers, there, weighted
from budgetalloc.logs.constant_scores import constant_scores
from budgetalloc.logs.frames import listed
from budgetalloc.logs.records import FAULTS, Notes, as_integer
from budgetalloc.logs.success_choice import chosen_success

__all__ = ["FILE", "fits", "rows", "whole"]

FILE = re.compile(r"completions_(\d{1,15})\.parquet")
_OWN = {"step", "prompt", "completion", "advantage", "prompt_id", "image"}
_SCORE = "score of "  # before the name of a reward function
_STATE = 1 << 28  # bytes of the largest trainer's state that is read
_MOST = 8  # columns of numbers whose combinations are compared with the advantages


def fits(frame: pd.DataFrame, path: Path, asked: Asked) -> bool:
    """Whether TRL wrote the file."""
    logged = FILE.fullmatch(path.name) is not None or path.name.startswith("completions_")
    return (logged and "prompt" in frame) or {"step", "prompt", "completion", "advantage"} <= set(
        frame.columns
    )


def rows(frame: pd.DataFrame, asked: Asked, path: Path, notes: Notes) -> pd.DataFrame:
    """The rollouts of a file, with the score of each reward function."""
    names = [str(name) for name in frame.columns]
    if "prompt" not in names and asked.prompt is None:
        raise InputError(
            f"{path} has the columns {listed(names)} and no 'prompt': it is not a completions file "
            "of TRL."
        )
    own = asked.prompt or ("prompt_id" if "prompt_id" in names else None)
    out = pd.DataFrame(index=frame.index)
    out["prompt"] = hashed(frame["prompt"].tolist()) if own is None else there(frame, "prompt", own)
    if "prompt" in names:
        out["text"] = frame["prompt"]
    out["file"] = pd.Series([path.name] * len(frame), dtype=object, index=frame.index)
    out["step"] = (
        int(match[1])
        if (match := FILE.fullmatch(path.name))
        else there(frame, "step", asked.step or "step")
    )
    if asked.length is not None:
        out["length"] = there(frame, "length", asked.length)
    functions = (
        list(asked.weights(""))
        if asked.reward is not None
        else _numeric_columns(frame, names, asked)
    )
    if not functions:
        raise InputError(
            f"{path} has the columns {listed(names)}, none of which is a reward. Pass reward= with "
            "the name of one."
        )
    for name in functions:
        out[_SCORE + name] = _score(frame, path, "reward", name)
    if asked.success is not None:
        out["success"] = _score(frame, path, "success", asked.success)
    if "advantage" in names and is_numeric(frame["advantage"]):
        out["advantage"] = numbers(frame["advantage"])[0]
    if "completion" in names:
        out["same"] = [hash(str(x)) for x in frame["completion"]]
    out["reward"] = 0.0
    for name in names:
        if name not in {*_OWN, *functions, asked.prompt, asked.success, asked.length, asked.step}:
            notes.unknown(name, len(frame))
    return out


def _numeric_columns(frame: pd.DataFrame, names: list[str], asked: Asked) -> list[str]:
    """The columns of numbers between completion and advantage, where TRL writes its reward
    functions."""
    first = names.index("completion") + 1 if "completion" in names else 0
    last = names.index("advantage") if "advantage" in names else len(names)
    return [
        name
        for name in names[first:last]
        if name not in {*_OWN, asked.prompt} and is_numeric(frame[name])
    ]


def _score(frame: pd.DataFrame, path: Path, argument: str, name: str) -> FloatArray:
    values = there(frame, argument, name)
    score, odd = numbers(values)
    if odd.any() or any(isinstance(x, str) for x in values):
        kind = type(values.tolist()[int(np.argmax(odd))]).__name__
        raise InputError(f"{argument}={name!r}: the column of {path} holds a {kind}, not numbers.")
    return score


def whole(
    rows: pd.DataFrame, asked: Asked, notes: Notes, files: Sequence[Path], place: Path | None
) -> pd.DataFrame:
    """The rollouts of all files. A batch that was logged twice counts once, and evaluations are
    left out."""
    rows = _once(rows, notes)
    evaluated = _evaluated(place)
    if evaluated:
        of_evaluation = rows["step"].isin(evaluated)
        note = "row of a step with an evaluation, left out: TRL overwrites the training's completions there"
        notes.doubt(note, int(of_evaluation.sum()))
        rows = rows[~of_evaluation]
    else:
        note = "row of a prompt that occurs at regular steps only: is it from evaluations?"
        notes.doubt(note, _regular(rows, len(files)))
    steps = [int(match[1]) for file in files if (match := FILE.fullmatch(file.name))]
    if place is not None and place.is_dir() and (gone := max(steps, default=0) - len(steps)) > 0:
        notes.missing = gone, max(steps)
        notes["step without a file (logging_steps=1 logs every step)"] += gone
    return _scored(rows, asked, notes)


def _once(rows: pd.DataFrame, notes: Notes) -> pd.DataFrame:
    """The rows without batches that repeat the batch before."""
    if "same" not in rows or not len(rows):
        return rows
    scores = [name for name in rows.columns if name.startswith(_SCORE)]
    before, kept = None, []
    for file, part in rows.groupby("file", sort=False):
        content = (
            part["prompt"].tolist(),
            part[["same", *scores]].to_numpy(dtype=np.float64, na_value=np.nan).tobytes(),
        )
        if content == before and part["same"].notna().all():
            notes["row logged again at a step that generated nothing"] += len(part)
        else:
            kept.append(file)
        before = content
    return rows[rows["file"].isin(kept)]


def _evaluated(place: Path | None) -> set[int]:
    """The steps of evaluations in the trainer's last checkpoint; none if there is no checkpoint."""
    evaluated: set[int] = set()
    if place is None:
        return evaluated
    folder = place.parent.parent if place.is_file() else place.parent
    states = (folder / "trainer_state.json", *folder.glob("checkpoint-*/trainer_state.json"))
    last = max((x for x in states if x.is_file()), key=lambda x: x.stat().st_mtime, default=None)
    with contextlib.suppress(OSError, *FAULTS):
        if last is not None and last.stat().st_size <= _STATE:
            for entry in json.loads(last.read_bytes())["log_history"]:
                if any(key.startswith("eval_") for key in entry):
                    evaluated.add(as_integer(entry["step"]))
    return evaluated


def _regular(rows: pd.DataFrame, files: int) -> int:
    """The rows of prompts that occur in exactly every k-th file, k > 1, from start to end, as those
    of evaluations do.

    0 if most prompts do, or only one.
    """
    at = pd.DataFrame({"prompt": rows["prompt"], "file": pd.factorize(rows["file"])[0]})
    seen = at.drop_duplicates().groupby("prompt", sort=False)["file"].agg(list)
    rhythms: dict[Any, tuple[int, int]] = {}
    lasting: Counter[tuple[int, int]] = Counter()
    for name, places in seen.items():
        if len(places) > 2 and len(apart := set(np.diff(places).tolist())) == 1:
            first, distance = rhythms[name] = places[0], apart.pop()
            if distance > 1 and first < 2 * distance and places[-1] + distance >= files:
                lasting[first, distance] += 1
    suspects = [name for name, rhythm in rhythms.items() if lasting[rhythm] > 1]
    count = int(rows["prompt"].isin(suspects).sum())
    return count if 2 * count < len(rows) else 0


def _scored(rows: pd.DataFrame, asked: Asked, notes: Notes) -> pd.DataFrame:
    """The rows with the total reward, and with success if a reward function measures it."""
    scores = {
        name.removeprefix(_SCORE): rows[name] for name in rows.columns if name.startswith(_SCORE)
    }
    frame = pd.DataFrame(scores, index=rows.index)
    weights = asked.weights("") if asked.reward is not None else dict.fromkeys(scores, 1.0)
    if asked.reward is None and len(weights) > 1:
        weights = _explained(frame, rows, notes)
    rows = rows.assign(reward=weighted(frame, weights))
    if "step" in rows:
        for text in constant_scores(rows["step"], scores):
            notes.doubt(text, len(rows))
    if asked.success is None and len(rows):
        first = (rows["file"] == rows["file"].iloc[0]).to_numpy()
        success_R = chosen_success(frame, weights, first, notes, known=asked.reward is not None)
        rows = rows if success_R is None else rows.assign(success=success_R)
    return rows


def _explained(scores: pd.DataFrame, rows: pd.DataFrame, notes: Notes) -> dict[str, float]:
    """The reward functions whose sum the advantages follow; all of them if that cannot be told."""
    every = dict.fromkeys(map(str, scores.columns), 1.0)
    if "advantage" in rows and (wrong := _against(weighted(scores, every), rows)):
        for size in range(1, len(every) if len(every) <= _MOST else 1):
            for names in combinations(every, size):
                if not _against(weighted(scores, dict.fromkeys(names, 1.0)), rows):
                    others = printable(", ".join(name for name in every if name not in names))
                    notes.doubt(
                        f"reward taken as {printable(', '.join(names))}, whose order the "
                        "advantages follow, and not "
                        f"{others}. If these were rewards, give the weights as --reward "
                        "NAME=WEIGHT (reward=)",
                        1,
                    )
                    return dict.fromkeys(names, 1.0)
        notes.doubt(
            "group whose advantages do not follow that sum: give the run's weights as --reward "
            "NAME=WEIGHT (reward=)",
            wrong,
        )
    notes.doubt(f"reward taken as the sum of {printable(', '.join(every))}, each with weight 1", 1)
    return every


def _against(rewards_R: FloatArray, rows: pd.DataFrame) -> int:
    """The groups whose advantages are not in the order of these rewards."""
    group_R = rows.groupby(["step", "prompt"], sort=False).ngroup().to_numpy()
    advantages_R = rows["advantage"].to_numpy()
    order = np.lexsort((advantages_R, rewards_R, group_R))
    more_R, up_R = np.diff(rewards_R[order]), np.diff(advantages_R[order])
    same_R = group_R[order][1:] == group_R[order][:-1]
    clearly = 0.01 * (np.nanmax(rewards_R, initial=0.0) - np.nanmin(rewards_R, initial=0.0))
    wrong_R = same_R & np.where(
        more_R > 1e-6, (up_R < -1e-4) | ((more_R > clearly) & (up_R < 1e-6)), up_R > 1e-4
    )
    return len(np.unique(group_R[order][1:][wrong_R]))

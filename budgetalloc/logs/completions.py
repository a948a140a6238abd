"""The completions that TRL writes with `GRPOConfig(log_completions=True)`: a file for each logging
step.

A file has the last batch before its step was logged: step, prompt, completion, a column for each
reward function, what reward functions logged with `log_extra`, and advantage. W&B keeps the same
tables as JSON. If one generation serves several steps, the same rows are logged again, and are
taken once. At an evaluation, TRL 1.16 replaces the training's completions of that step by those of
the evaluation, which only a checkpoint in the same folder shows.
"""

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import EQUAL, WAIT, RewardHistory
from budgetalloc.errors import printable
from budgetalloc.logs.arrow_files import arrow_frames
from budgetalloc.logs.cells import OWN, Asked, each, is_numeric, numbers, weighted
from budgetalloc.logs.records import FAULTS, Notes, as_integer
from budgetalloc.logs.table import SCORE, groups_of, with_groups

_FILE = re.compile(r"completions_(\d{1,15})\.parquet")
_NOT_REWARDS = ("step", "prompt", "completion", "advantage", "prompt_id", "image")
_STATE = 1 << 28  # bytes of the largest trainer's state that is read
_MOST = 8  # columns of numbers whose combinations are compared with the advantages
_ROUNDING = 1e-4  # of a mean advantage, relative to the largest
_CONSTANT = 10  # steps in a row with one score only
_ASK = "pass --success COLUMN (success= in Python)"


def fits(names: set[str], path: Path) -> bool:
    """Whether TRL wrote the file."""
    named = path.name.startswith("completions_") and "prompt" in names
    return named or {"step", "prompt", "completion", "advantage"} <= names


def table(
    frame: pd.DataFrame, asked: Asked, path: Path, notes: Notes
) -> tuple[pd.DataFrame, Asked]:
    """The rows of files. Without `asked.reward`, the columns of numbers between completion and
    advantage are rewards, because TRL writes its reward functions there."""
    names = [str(name) for name in frame.columns if not str(name).startswith(OWN)]
    first = names.index("completion") + 1 if "completion" in names else 0
    last = names.index("advantage") if "advantage" in names else len(names)
    between = [name for name in names[first:last] if name not in (*_NOT_REWARDS, asked.prompt)]
    functions = dict.fromkeys((name for name in between if is_numeric(frame[name])), 1.0)
    out = frame.drop(columns=["completion", "advantage", "image"], errors="ignore")
    matches = [_FILE.fullmatch(Path(x).name) for x in frame[OWN + "file"].cat.categories]
    if all(matches):
        steps = np.array([int(match[1]) for match in matches if match], dtype=np.int64)
        out = out.assign(step=steps[frame[OWN + "file"].cat.codes])
    if "advantage" in names and is_numeric(frame["advantage"]):
        out[OWN + "advantage"], _ = numbers(frame["advantage"])
    if "completion" in names and OWN + "completion" not in frame:
        out[OWN + "completion"] = each(frame["completion"], lambda cell: hash(str(cell)))
    reward = asked.reward or functions
    return out, replace(asked, reward={reward: 1.0} if isinstance(reward, str) else reward)


def whole(
    rows: pd.DataFrame, asked: Asked, notes: Notes, files: Sequence[Path], place: Path | None
) -> pd.DataFrame:
    """The rollouts of all files. A batch that was logged twice counts once, and evaluations are
    left out."""
    rows = _once(rows, notes)
    if evaluated := _evaluated(place):
        of_evaluation = rows["step"].isin(evaluated)
        note = (
            "row of a step with an evaluation, left out: TRL overwrites the training's "
            "completions there"
        )
        notes.doubt(note, of_evaluation.sum())
        rows = rows[~of_evaluation]
    else:
        note = "row of a prompt that occurs at regular steps only: is it from evaluations?"
        notes.doubt(note, _regular(rows, len(files)))
    steps = [int(match[1]) for file in files if (match := _FILE.fullmatch(file.name))]
    if place is not None and place.is_dir() and (gone := max(steps, default=0) - len(steps)) > 0:
        notes.missing = gone, max(steps)
        notes["step without a file (logging_steps=1 logs every step)"] += gone
    return _scored(with_groups(rows, _group_size(rows)), asked, notes)


def _once(rows: pd.DataFrame, notes: Notes) -> pd.DataFrame:
    """The rows without batches that repeat the batch before."""
    if OWN + "completion" not in rows:
        return rows
    file_R, _ = pd.factorize(rows[OWN + "file"])
    scores = rows.filter(regex=f"^{SCORE}").to_numpy(dtype=np.float64)
    content = np.column_stack([rows["prompt"].cat.codes, scores])
    starts = np.flatnonzero(np.diff(file_R, prepend=-1))
    batches = np.split(content, starts[1:])
    repeated = [
        at
        for at in range(1, len(batches))
        if np.array_equal(batches[at], batches[at - 1], equal_nan=True)
        # the texts are read of batches that are equal otherwise
        and _same_texts(rows[file_R == at - 1], rows[file_R == at])
    ]
    again_R = np.isin(file_R, repeated)
    notes.note("row logged again at a step that generated nothing", again_R.sum())
    return rows[~again_R]


def _same_texts(*batches: pd.DataFrame) -> bool:
    """Whether the files of two batches hold equal completions."""
    found = []
    for rows in batches:
        file = Path(rows[OWN + "file"].iloc[0])
        if file.suffix != ".parquet":
            found.append(list(rows[OWN + "completion"]))
        for frame in arrow_frames([file], Notes(), lambda names: ({"completion"} & {*names}, None)):
            found += [list(frame["completion"])] if "completion" in frame else []
    return len(found) == len(batches) and found[0] == found[1]


def _group_size(rows: pd.DataFrame) -> int:
    """The size of TRL's groups: the most rollouts of a prompt in one step, unless the advantages
    say that TRL made several groups of one prompt, as of rows with equal prompts.

    It is the largest size of parts, one after another, that nothing contradicts: advantages sum to
    0, and are equal where scores are. If no advantage differs from 0, the scores are equal.
    """
    groups_R = groups_of(rows)
    count_G = np.bincount(groups_R)
    whole, common = int(count_G.max(initial=1)), int(np.gcd.reduce(count_G))
    if OWN + "advantage" not in rows or not len(rows):
        return whole
    advantages, scores = rows[OWN + "advantage"], rows.filter(regex=f"^{SCORE}")
    most = float(advantages.abs().max())
    for size in (whole, *(x for x in range(common, 1, -1) if common % x == 0)):
        keys = groups_R if size == whole else groups_of(with_groups(rows, size))
        if most > 0:
            group_R = advantages.groupby(keys).transform("sum", min_count=1)
            alike = advantages.groupby([keys, *(scores[x] for x in scores)], dropna=False)
            wrong = max(group_R.abs().max() / size, (alike.max() - alike.min()).max())
            fits = advantages.notna().all() and wrong <= _ROUNDING * most
        else:
            parts = scores.groupby(keys)
            fits = (parts.max() - parts.min()).fillna(0.0).to_numpy().max(initial=0.0) <= EQUAL
        if fits:
            return size
    return whole


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
    of evaluations do. 0 if most prompts do, or only one."""
    prompt_R = rows["prompt"].cat.codes
    at = pd.DataFrame({"prompt": prompt_R, "file": pd.factorize(rows[OWN + "file"])[0]})
    at = at.drop_duplicates()
    at["gap"] = at.groupby("prompt")["file"].diff()
    by_prompt = at.groupby("prompt", sort=False)
    seen = by_prompt["file"].agg(["min", "max", "size"]).assign(gap=by_prompt["gap"].min())
    even = (by_prompt["gap"].max() == seen["gap"]) & (seen["gap"] > 1) & (seen["size"] > 2)
    lasting = (seen["min"] < 2 * seen["gap"]) & (seen["max"] + seen["gap"] >= files)
    regular = seen[even & lasting]
    shared = regular[regular.duplicated(["min", "gap"], keep=False)]
    count = int(prompt_R.isin(shared.index).sum())
    return count if 2 * count < len(rows) else 0


def _scored(rows: pd.DataFrame, asked: Asked, notes: Notes) -> pd.DataFrame:
    """The rows with the total reward, and with success if a reward function measures it."""
    of = {name: name.removeprefix(SCORE) for name in rows.columns if name.startswith(SCORE)}
    scores = rows[[*of]].rename(columns=of)
    weights = dict.fromkeys(of.values(), 1.0)
    if asked.reward is not None:
        weights = {asked.reward: 1.0} if isinstance(asked.reward, str) else dict(asked.reward)
    if asked.reward is None and len(weights) > 1:
        weights = _explained(scores, rows, notes)
    for text in constant_scores(rows["step"], scores):
        notes.doubt(text, len(rows))
    rows = rows.assign(reward=weighted(scores, weights))
    if asked.success is None and len(rows):
        known = asked.reward is not None
        success_R = chosen_success(scores, weights, rows["step"], notes, known=known)
        rows = rows if success_R is None else rows.assign(success=success_R)
    return rows


def _explained(scores: pd.DataFrame, rows: pd.DataFrame, notes: Notes) -> dict[str, float]:
    """The reward functions whose sum the advantages follow; all of them if that cannot be told."""
    every = dict.fromkeys(map(str, scores.columns), 1.0)
    if OWN + "advantage" in rows and (wrong := _against(weighted(scores, every), rows)):
        for size in range(1, len(every) if len(every) <= _MOST else 1):
            for names in combinations(every, size):
                if _against(weighted(scores, dict.fromkeys(names, 1.0)), rows):
                    continue
                others = ", ".join(name for name in every if name not in names)
                notes.doubt(
                    f"reward taken as {printable(', '.join(names))}, whose order the advantages "
                    f"follow, and not {printable(others)}. If these were rewards, give the "
                    "weights as --reward NAME=WEIGHT (reward=)"
                )
                return dict.fromkeys(names, 1.0)
        notes.doubt(
            "group whose advantages do not follow that sum: give the run's weights as --reward "
            "NAME=WEIGHT (reward=)",
            wrong,
        )
    notes.doubt(f"reward taken as the sum of {printable(', '.join(every))}, each with weight 1")
    return every


def _against(rewards_R: FloatArray, rows: pd.DataFrame) -> int:
    """The groups whose advantages are not in the order of these rewards."""
    group_R = groups_of(rows)
    advantages_R = rows[OWN + "advantage"].to_numpy()
    order = np.lexsort((advantages_R, rewards_R, group_R))
    more_R, up_R = np.diff(rewards_R[order]), np.diff(advantages_R[order])
    same_R = group_R[order][1:] == group_R[order][:-1]
    clearly = 0.01 * (np.nanmax(rewards_R, initial=0.0) - np.nanmin(rewards_R, initial=0.0))
    falls_R = (up_R < -1e-4) | ((more_R > clearly) & (up_R < 1e-6))
    wrong_R = same_R & np.where(more_R > 1e-6, falls_R, up_R > 1e-4)
    return len(np.unique(group_R[order][1:][wrong_R]))


def chosen_success(
    scores: pd.DataFrame,
    weights: Mapping[str, float],
    step_R: ArrayLike,
    notes: Notes,
    *,
    known: bool,
) -> FloatArray | None:
    """The success of each rollout, chosen as the callback chooses it in the log's first steps;
    None: the total reward. `known` says whether the weights are those of the run, or assumed."""
    names = list(weights)
    if len(names) < 2:
        return None
    scores_RF = scores[names].to_numpy(dtype=np.float64)
    at_R = pd.factorize(pd.Series(step_R))[0]
    returned, last = RewardHistory.none(len(names)), min(int(at_R.max()), WAIT)
    for step in range(last + 1):
        returned = returned.plus(scores_RF[at_R == step])
        waited = step if step < last else WAIT  # a log may end earlier
        chosen_F = returned.success(list(weights.values()), waited)
        if chosen_F is not None:
            break
    chosen = [names[f] for f in chosen_F or ()]
    words = printable(" and ".join(f"{name}=1" for name in chosen))
    if not chosen:
        notes.doubt(
            f"success is not known, because none of {printable(', '.join(names))} gave both 0 and "
            f"1, so the total reward is used: {_ASK}"
        )
        return None
    if len(chosen) == 1:
        notes[f"success taken as {words}, the reward function that gave both 0 and 1"] = 1
    elif known:
        notes[f"success taken as {words}, which gave both 0 and 1 and have the largest weight"] = 1
    else:
        notes.doubt(
            f"success taken as {words}, because all of them gave both 0 and 1, and the log does "
            f"not have their weights. If one of them measures success: {_ASK}"
        )
    success_R = np.fmin.reduce(scores[chosen].to_numpy(dtype=np.float64), axis=1)
    outside = ((success_R < -EQUAL) | (success_R > 1 + EQUAL)).sum()  # False for NaN
    notes.doubt(f"reward of {words} outside [0, 1], although taken as success: {_ASK}", outside)
    return np.asarray(success_R)


def constant_scores(step_R: ArrayLike, scores: Mapping[str, ArrayLike]) -> list[str]:
    """A line for each reward function that became constant: a verifier that died, or prompts that
    are all solved.

    A function became constant if every score of its last 10 steps or more is the same, and at least
    half of its steps before had another score: a penalty that is rarely incurred is left out.
    """
    lines = []
    for name, score_R in scores.items():
        known = pd.DataFrame({"step": step_R, "score": np.asarray(score_R, dtype=float)}).dropna()
        if not len(known):
            continue
        value = known["score"][known["step"].idxmax()]  # of the last step
        other_S = ((known["score"] - value).abs() > EQUAL).groupby(known["step"].to_numpy()).any()
        start = int(np.flatnonzero(other_S).max(initial=-1)) + 1
        if len(other_S) - start >= _CONSTANT and 0 < start <= 2 * other_S.sum():
            lines.append(
                f"The reward function {name} varied, and is {value:g} for every rollout since step "
                f"{other_S.index[start]}: check what computes it."
            )
    return lines

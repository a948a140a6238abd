"""Columns that contradict that the rows of a log are all rollouts of its groups, or that its ids
name prompts, or that it is one run."""

import re
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from budgetalloc.beliefs.rewards import EQUAL
from budgetalloc.errors import printable
from budgetalloc.logs.cells import OWN, each, known_id, numbers, of_type, plain
from budgetalloc.logs.columns import by_code, codes_of
from budgetalloc.logs.records import Notes

_ROLLOUTS = "(rollouts?|samples?|generations?|responses?|completions?|repeats|return_sequences)"
_ADVANTAGE = re.compile(r"(group_)?advantages?")
_SIZE = re.compile(
    rf"group_?size|(num|n)_?{_ROLLOUTS}(_per_prompt)?|{_ROLLOUTS}_(per_prompt|count)"
)
_LIST = re.compile(r"(group|all|prompt|peer|sibling)_(rewards|scores|advantages|returns)")
_RESPONSE = re.compile(r"(completion|response|output|generation)(_text)?|(filtered_)?resps?")
_SCORER = re.compile(
    r"(filter|scorer|judge|grader|verifier|metric|evaluator|rubric|reward_(function|func|fn))(_name)?"
    r"|reward_name"
)
_REASON = re.compile(
    r"(capture|captured|select|selection|selected|sample|sampling|filter|drop|keep|kept|log|pick)"
    r"_(reason|by|rule)"
)
_RUN = re.compile(r"(run|seed|experiment|trial)(_?(id|name|idx|index|number))?")
_CONTENT = re.compile(
    r"(raw_|input_)?(prompt|question|problem|query|messages)|input(_ids|_tokens|_text)?|"
    r"prompt_(text|tokens|token_ids|ids|messages)"
)
_PLACE = re.compile(r".*(idx|index|place|position|slot)|task_id|group_id")  # may restart in a step
_ENOUGH = 8  # rows that allow an inference
_ROUNDING = 0.01  # of a mean advantage, relative to the largest, and of a share


def wanted(name: Any, *, ids_are_numbers: bool) -> bool:
    """Whether a column may hold such facts. What prompts contain matters if their ids are
    numbers."""
    patterns = (_ADVANTAGE, _SIZE, _LIST, _SCORER, _REASON, _RUN)
    content = ids_are_numbers and _CONTENT.fullmatch(plain(name)) is not None
    return content or any(pattern.fullmatch(plain(name)) for pattern in patterns)


def is_response(name: Any) -> bool:
    """Whether a column holds what the model generated."""
    return _RESPONSE.fullmatch(plain(name)) is not None


def add_facts(frame: pd.DataFrame, used: list[str]) -> pd.DataFrame:
    """What such columns of a table hold, by names that come after `OWN`."""
    facts = pd.DataFrame(index=frame.index)
    for name in frame.columns.drop(used, errors="ignore"):
        key, cells = plain(name), frame[name]
        if _ADVANTAGE.fullmatch(key):
            facts[f"{OWN}advantage"] = numbers(cells)[0]
        elif _SIZE.fullmatch(key):
            facts[f"{OWN}size {name}"] = numbers(cells)[0]
        elif _LIST.fullmatch(key):
            facts[f"{OWN}size {name}"] = each(cells, _size).astype(float)
        elif is_response(name) and (several := each(cells, _responses).astype(float) > 1).any():
            facts[f"{OWN}size {name}"] = np.where(several, each(cells, _responses), np.nan)
        elif is_response(name) and f"{OWN}completion" not in (*facts, *frame):
            facts[f"{OWN}completion"] = codes_of(cells)
        elif _SCORER.fullmatch(key) or _REASON.fullmatch(key):
            facts[f"{OWN}word {name}"] = cells.where(of_type(cells, str))
        elif _RUN.fullmatch(key):
            facts[f"{OWN}run {name}"] = codes_of(cells)
    return facts.drop(columns=frame.columns, errors="ignore")


def _responses(cell: Any) -> float:
    """How many responses are in a cell, which may be a list in a list."""
    cell = cell[0] if isinstance(cell, list) and len(cell) == 1 else cell
    texts = isinstance(cell, list) and all(isinstance(x, str) for x in cell)
    return float(len(cell)) if texts else np.nan


def _size(cell: Any) -> float:
    return float(len(cell)) if isinstance(cell, list) else np.nan


def add_contents(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """The name of the column of ids, and hashes of the prompts' contents if a column has them."""
    facts = pd.DataFrame({f"{OWN}ids {name}": True}, index=frame.index)
    for other in frame.columns.drop(name):
        if _CONTENT.fullmatch(plain(other)):
            cells = each(frame[other], partial(known_id, is_text=True))
            return facts.assign(**{f"{OWN}content {other}": pd.Series(cells, frame.index, object)})
    return facts


def _of_kind(rows: pd.DataFrame, kind: str) -> dict[str, pd.Series]:
    """What `add_facts` and `add_contents` kept, by the column that it came from."""
    start = f"{OWN}{kind} "
    return {name.removeprefix(start): rows[name] for name in rows if name.startswith(start)}


def with_prompts(rows: pd.DataFrame, notes: Notes, *, named: bool) -> pd.DataFrame:
    """The rows, whose prompts are named by their contents if their ids restart in each step. Ids of
    a column that the user `named`, and ids with gaps, are only doubted."""
    own = next(iter(_of_kind(rows, "ids")), None)
    if own is None:
        return rows
    ids_R, odd_R = numbers(rows["prompt"])
    ids_S = pd.Series(ids_R, rows.index).groupby(rows["step"]).agg(["min", "max", "nunique"])
    low = ids_S["min"].iloc[0]
    restarts = not odd_R.any() and len(ids_S) > 1 and low in (0, 1) and (ids_S["min"] == low).all()
    whole = restarts and (ids_S["max"] - low + 1 == ids_S["nunique"]).all()
    text = f"column {own!r} has the same ids in several steps"
    text = f"column {own!r} numbers prompts from {low:g} on in each step" if whole else text
    contents = _of_kind(rows, "content")
    codes_R = rows["prompt"].cat.codes
    for other, content_R in contents.items():
        several_P = content_R.groupby(codes_R).nunique() > 1
        alike_G = content_R.groupby([rows["step"], codes_R]).nunique() <= 1
        if 2 * several_P.sum() <= len(several_P) or not (whole or alike_G.all()):
            continue
        if named or not whole:
            notes.doubt(f"{text}, with another {other!r}: pass prompt={other!r}", len(rows))
            return rows
        notes.doubt(f"{text}, with another {other!r}: prompts are named by {other!r}", len(rows))
        named_R = content_R.where(content_R.notna(), rows["prompt"].astype(object))
        return rows.assign(prompt=by_code(named_R))
    if whole and not contents and _PLACE.fullmatch(plain(own)):
        notes.doubt(
            f"{text}: are these the same prompts? If not, name the column of prompts with prompt=",
            len(rows),
        )
    return rows


def doubt_rows(rows: pd.DataFrame, groups_R: NDArray[np.int64], notes: Notes) -> None:
    """Notes where the columns of `add_facts` contradict the groups of the rows."""
    group_R = pd.Series(groups_R, rows.index)
    size_R = pd.Series(np.bincount(groups_R)[groups_R], rows.index)
    for column, said_R in _of_kind(rows, "size").items():
        alike_R = said_R.groupby(group_R).transform("nunique") == 1  # otherwise it numbers rollouts
        wrong_R = (said_R >= 1) & (size_R % said_R != 0) & alike_R
        if wrong_R.any():
            at = wrong_R.idxmax()
            notes.doubt(
                f"column {printable(column)!r} says {said_R[at]:g} rollouts of a group, of which "
                f"the log has {size_R[at]}: rollouts are missing, so groups and shares are not the "
                "run's. Read the log of all rollouts",
                group_R[wrong_R].nunique(),
            )
    if f"{OWN}advantage" in rows:
        advantages_R = rows[f"{OWN}advantage"]
        sums_G = advantages_R.groupby(group_R).sum(min_count=1).abs()
        most = _ROUNDING * advantages_R.abs().max()
        notes.doubt(
            "group whose advantages do not sum to 0: either rollouts are missing "
            "(log_unique_prompts=True leaves them out), so that groups and shares are not the "
            "run's, or the baseline is not the group's mean (as with adaptive())",
            (sums_G > most * np.bincount(groups_R)[sums_G.index]).sum(),
        )
    for column, word_R in _of_kind(rows, "word").items():
        _doubt_words(word_R, column, group_R, notes)
    if f"{OWN}completion" in rows:
        known = pd.DataFrame({"group": group_R, "text": rows[f"{OWN}completion"]})
        known = known.assign(reward=rows["reward"])[size_R > 1].dropna(subset="text")
        reward_T = known.groupby(["group", "text"])["reward"]
        notes.doubt(
            "response that has several rewards in its group: was one rollout scored several times? "
            "Keep one row of each rollout",
            (reward_T.max() - reward_T.min() > EQUAL).sum(),
        )
        equal_G = known.groupby("group")["text"].nunique() == 1
        times_T = reward_T.size()
        times = times_T.median() if len(times_T) >= _ENOUGH else 1
        if 2 * equal_G.sum() > len(equal_G):
            notes.doubt(
                "group whose responses are all equal: are its rows copies of one rollout, or were "
                "all generated with one seed?",
                equal_G.sum(),
            )
        elif times > 1 and (times_T == times).mean() > 1 - _ROUNDING:
            notes.doubt(
                f"response that comes {times:g} times in its group, as all do: was one rollout "
                "scored several times? Keep one row of each rollout",
                len(times_T),
            )
    for column, run_R in _of_kind(rows, "run").items():
        of_run = pd.DataFrame({"group": group_R, "run": run_R})
        several = (of_run.groupby("group")["run"].nunique() > 1).any()
        if several and of_run.duplicated().any():  # otherwise it numbers the rollouts of a group
            notes.doubt(
                f"column {printable(column)!r} has several values in a group, and each several "
                "times: are these several runs? Read each on its own",
                len(rows),
            )


def doubt_runs(rows: pd.DataFrame, notes: Notes) -> None:
    """Notes steps that come again after later ones, with prompts of before.

    A column that counts the visits of each prompt goes back between prompts, but never for one.
    """
    block_R = (rows["step"].diff() < 0).cumsum()
    if not 0 < _ENOUGH * block_R.max() <= len(rows):
        return  # ascending, or in no order
    at_R = rows["step"].groupby([rows["step"], block_R]).transform("size")
    whole_R = 2 * at_R >= at_R.groupby(rows["step"]).transform("max")  # not a straggler
    over_R = whole_R & (rows["step"] < rows["step"].groupby(block_R).transform("max"))
    again_R = whole_R & (block_R > block_R.where(over_R).groupby(rows["step"]).transform("min"))
    codes_R = rows["prompt"].cat.codes
    several_P = block_R.groupby(codes_R).nunique() > 1
    back_P = (rows["step"].groupby(codes_R).diff() < 0).groupby(codes_R).any()
    twice_PS = block_R.groupby([codes_R, rows["step"]]).nunique() > 1
    back_P |= twice_PS.groupby(level=0).any()
    many = 2 * several_P.sum() > len(several_P) and 4 * back_P.sum() > several_P.sum()
    if many and rows["step"][again_R].nunique() > 1:
        notes.doubt(
            "row of a step that comes again after later steps, with the same prompts: does the log "
            "hold several runs? Read each on its own",
            again_R.sum(),
        )


def _doubt_words(word_R: pd.Series, column: str, group_R: pd.Series, notes: Notes) -> None:
    words = sorted(set(word_R.dropna()))
    shown = printable(f"{column!r} ({', '.join(words[:3])}{', ...' if len(words) > 3 else ''})")
    if _REASON.fullmatch(plain(column)):
        notes.doubt(
            f"column {shown} says why rows were kept: the figures are those of these rows, not of "
            "the run. Read the log of all rollouts",
            word_R.notna().sum(),
        )
    elif (word_R.groupby(group_R).nunique() > 1).any():
        notes.doubt(
            f"column {shown} has several values in a group: does each score the same rollouts? "
            "Keep the rows of one",
            word_R.notna().sum(),
        )

"""Calls the reward functions of a trainer on a few made-up answers, and says before a run what the
run would show after hours: a constant, a wrong answer that is paid, a right one that is not."""

import contextlib
import copy
import inspect
import io
import itertools
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from datasets import Dataset
from torch import nn
from trl.data_utils import is_conversational

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import short_repr
from budgetalloc.trl.patching import patched_attribute

_ROWS = 4
_SAME = 0.1  # of a range of rewards: what differs by less is equal, as where length counts a little
_LOST = 0.4  # of what a right answer earns more than an empty one: graded similarity loses less
# Columns that hold the right answer, or keys of a column of dicts that do.
_ANSWERS = (
    *("answer", "solution", "ground_truth", "final_answer", "reference_answer", "gold_answer"),
    *("correct_answer", "expected_answer", "gold"),
)
_THINK = "<think>\nI work this out.\n</think>\n"
# Forms of a right answer; `_forms` adds those with the tags of the prompt and of the function.
_FORMS = (
    *("{0}", "${0}$", "\\boxed{{{0}}}", "$\\boxed{{{0}}}$", "The answer is {0}", "Answer: {0}"),
    *("#### {0}", "<answer>{0}</answer>", _THINK + "{0}", _THINK + "$\\boxed{{{0}}}$"),
    *(_THINK + "<answer>{0}</answer>", "```python\n{0}\n```", '{{"answer": "{0}"}}'),
)
_GUESS = "I do not know, but I would guess. "
_WRONG = ("", "?", _GUESS, _GUESS * 50, _THINK + _GUESS, "1 2 3 4 5\n" * 5, "不知道")


def probe(trainer: Any, scoring: Any) -> Iterator[str]:
    """One sentence for each thing that is wrong with the reward functions; none if nothing is.

    Every function that is no model scores about 100 answers to the first 4 rows, as in a step.
    Nothing is generated. Functions of a run with tools, environments or a `rollout_func` need real
    rollouts and are not called. Wrong answers are compared with the right one where the function
    reads a column such as "answer" or "solution".

    Args:
        trainer: A `GRPOTrainer` before `train()`.
        scoring: The `Scoring` of its session, which says what success is.
    """
    if any(getattr(trainer, name, None) for name in ("tools", "environments", "rollout_func")):
        return
    rows = list(itertools.islice(trainer.train_dataset, _ROWS))
    found, wrong = 0, list[FloatArray]()
    for at, function in enumerate(trainer.reward_funcs):
        name = trainer.reward_func_names[at]
        if not rows or isinstance(function, nn.Module):
            continue
        try:
            scorer = _Scorer(trainer, at, rows)
            wrong.append(scorer(itertools.product(rows, _WRONG)))
            for sentence in _compared(scorer, function, wrong[-1].reshape(len(rows), -1)):
                found += 1
                yield f"{name} {sentence}"
        except (Exception, SystemExit) as error:
            answers = " and ".join([*getattr(error, "__notes__", []), "a made-up answer"][:1])
            yield f"{name} raises {type(error).__name__} for {answers}: {short_repr(str(error))}"
    if found or len(wrong) < len(trainer.reward_funcs):
        return
    scores_RF = np.stack(wrong, axis=1)
    rewards_R = scoring.total_rewards(scores_RF)
    try:
        success_R = scoring.measure(rewards_R, scores_RF).success(rewards_R, scores_RF)
    except Exception as error:
        yield f"success= raises {type(error).__name__} for made-up answers: {error}"
        return
    if (lowest := np.nanmin(success_R, initial=1)) >= _SAME and not np.isnan(success_R).all():
        yield f"success is never 0: {lowest:.2g} is the least of {len(success_R)} wrong answers"


class _Scorer:
    """A function that scores pairs of a row and an answer, as the trainer would."""

    def __init__(self, trainer: Any, at: int, rows: Sequence[Mapping[str, Any]]) -> None:
        self.trainer, self.at, self.rows = trainer, at, rows
        self.state = copy.copy(trainer.state)
        self.state.max_steps = max(trainer.args.max_steps, 1)  # which train() sets

    def __call__(self, pairs: Iterable[tuple[Mapping[str, Any], str]]) -> FloatArray:
        """The rewards, shape (R,), NaN for None. An exception has the first answer as a note."""
        pairs = list(pairs)
        try:
            return self._scores(pairs)
        except (Exception, SystemExit) as error:
            for pair in pairs if len(pairs) > 1 else []:
                self([pair])
            error.add_note(
                f"the answer {short_repr(pairs[0][1])}" if len(pairs) == 1 else "all answers"
            )
            raise

    def _scores(self, pairs: Sequence[tuple[Mapping[str, Any], str]]) -> FloatArray:
        rows, texts = zip(*pairs, strict=True)
        trainer, one = self.trainer, slice(self.at, self.at + 1)
        answers: list[Any] = list(texts)
        if is_conversational(rows[0]):
            answers = [[{"role": "assistant", "content": text}] for text in texts]
        tokens = trainer._tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            stack.callback(logging.disable, logging.root.manager.disable)
            logging.disable(logging.WARNING)  # of answers that no function scores
            stack.enter_context(patched_attribute(trainer, "state", self.state))
            for name in ("reward_funcs", "reward_func_names", "reward_processing_classes"):
                mine = getattr(trainer, name)[one]
                stack.enter_context(patched_attribute(trainer, name, mine))
            prompts = [row["prompt"] for row in rows]
            scores = trainer._calculate_rewards(list(rows), prompts, answers, tokens)
        return np.asarray(scores[:, 0].tolist(), dtype=np.float64)


def _compared(scorer: _Scorer, function: Any, wrong_PK: FloatArray) -> Iterator[str]:
    """What the rewards of right answers say next to those of wrong ones, (row, answer)."""
    rows = scorer.rows
    known = [_answers(row, function) for row in rows]
    reads = all(known)
    answers = known if reads else [["42"] * 3 for _ in rows]
    forms = _forms(function, str(rows[0]["prompt"]))
    distinct = [n for n in range(3) if any(texts[n] not in texts[:n] for texts in answers)]
    kinds = [(form, n) for n in distinct for form in forms]
    filled = [[form.format(texts[which]) for form, which in kinds] for texts in answers]
    right_PK = scorer((row, text) for row, own in zip(rows, filled, strict=True) for text in own)
    right_PK = right_PK.reshape(len(rows), -1)
    every = np.concatenate([wrong_PK, right_PK], axis=1)
    if np.isnan(every).all(axis=1).any():  # this function does not score all rows
        return
    low, high = np.nanmin(every), np.nanmax(every)
    if low == high != 0:
        if not np.isnan(every).any():
            yield f"pays {low:g} for each of {every.size} answers, right, wrong and empty"
        return
    if not np.allclose(scorer(itertools.product(rows[:1], _WRONG)), wrong_PK[0], equal_nan=True):
        return  # a judge that draws
    with contextlib.suppress(Exception):  # columns that `datasets` cannot hold
        back = Dataset.from_list([dict(row) for row in rows]).to_list()
        if repr(back) != repr(rows):
            kept = scorer(
                (row, text) for row, own in zip(back, filled, strict=True) for text in own
            )
            if not np.allclose(kept, right_PK.ravel(), equal_nan=True):
                yield "changes when the columns have been through datasets.Dataset.from_list"
    if not reads:
        return
    best = int(np.nansum(right_PK - low, axis=0).argmax())
    empty_P = np.nan_to_num(wrong_PK[:, 0], nan=low)  # None pays nothing
    right_P, same = right_PK[:, best], _SAME * (high - low)
    paid = (empty_P >= right_P - same) & (empty_P > low + same)
    if paid.any():
        yield f"pays an empty answer {empty_P[paid][0]:g}, and the right one {right_P[paid][0]:g}"
        return
    works = np.flatnonzero(right_P > empty_P + same).tolist()
    if not works:
        yield f"pays the right answer no more than an empty one, in each of {len(forms)} forms"
        return
    form, which = kinds[best]
    own = [texts[which] for texts in answers]
    others = [(i, form.format(text)) for i in works for text in own if text != own[i]]
    ended = [(i, filled[i][best] + "\n") for i in works]
    scores = scorer((rows[i], text) for i, text in (*others, *ended))
    other, line = np.split(scores, [len(others)])
    equal = sum(other >= right_P[[i for i, _ in others]] - same)
    if 2 * equal > len(other):
        yield f"pays the answer of another row like the right one, {equal} times of {len(other)}"
    if (right_P[works] - line > _LOST * (right_P - empty_P)[works]).any():
        yield "pays the right answer less when a line break follows it"


def _answers(row: Mapping[str, Any], function: Any) -> list[str]:
    """Three texts that may be a row's right answer: the whole column, what follows "####" and what
    the last \\boxed{} holds. Empty if the function reads no column that looks like an answer."""
    for column, value in row.items():
        for name, text in value.items() if isinstance(value, dict) else [(column, value)]:
            known = name in _ANSWERS and isinstance(text, (str, int, float)) and str(text).strip()
            if known and _reads(function, column):
                whole = str(text).strip()
                boxed = whole.rpartition("\\boxed{")[2].rpartition("}")[0] or whole
                return [whole, whole.rpartition("####")[2].strip() or whole, boxed]
    return []


def _reads(function: Any, column: str) -> bool:
    """Whether the code of a function names a column."""
    function = inspect.unwrap(getattr(function, "func", function))
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return column in (*getattr(code, "co_varnames", ()), *getattr(code, "co_consts", ()))


def _forms(function: Any, prompt: str) -> list[str]:
    source = ""
    with contextlib.suppress(OSError, TypeError):
        source = inspect.getsource(function)
    tags = list(dict.fromkeys(re.findall(r"<(\w+)>", prompt + source)))[:8]
    tagged = [f"<{tag}>{{0}}</{tag}>" for tag in tags]
    lines = [f"<{tag}>\n{{0}}\n</{tag}>\n" for tag in tags]
    return list(dict.fromkeys([*_FORMS, *tagged, "".join(lines) or "{0}"]))

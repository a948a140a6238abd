"""Histograms and a table for W&B, trackio and TensorBoard. The trainer's own log supports numbers
only."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.state import load_state, save_state
from budgetalloc.budget import IntArray
from budgetalloc.logs.prompt_texts import LONGEST
from budgetalloc.policies import Policy
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.trl.prompt_costs import PromptCosts, histogram_of_counts, histogram_of_rates

__all__ = ["COLUMNS", "PROMPT_COSTS_FILE", "TRACKERS", "Trackers", "as_markdown"]

logger = logging.getLogger(__name__)
COLUMNS = ("prompt", "rollouts", "tokens", "success", "believed", "text")
PROMPT_COSTS_FILE = "budgetalloc_spending.npz"
_ROWS = 20
_TextsOf = Callable[[Sequence[Id]], Mapping[Id, str]]
_GROUP = "train/budgetalloc/"  # where transformers puts what a trainer logs as "budgetalloc/..."


class _Shown(NamedTuple):
    """The data for a tracker at one logging step."""

    step: int  # the trainer's global step
    counts_G: IntArray  # rollouts of each group since the last log
    predicted_G: FloatArray  # the predicted success rate of its prompt before its step
    rows: list[tuple[Any, ...]]  # the most expensive prompts so far, by `COLUMNS`


class Trackers:
    """Collects data of the steps, and passes them to the trackers of `report_to` at logging steps.

    The table counts every rollout since training began, and is saved in checkpoints. `success` is
    the mean reward of the rollouts without a hint, in [0, 1]; `believed` is the current posterior
    mean.

    Args:
        trainer: The `GRPOTrainer`.
        policy: The policy whose beliefs are shown.
        names: The trackers to use, from `TRACKERS`.
        texts_of: Returns the known texts of prompts by id.
    """

    def __init__(self, trainer: Any, policy: Policy, names: list[str], texts_of: _TextsOf) -> None:
        self.trainer, self.policy, self.names, self.texts_of = trainer, policy, names, texts_of
        self.prompt_costs = PromptCosts()
        self._groups: list[tuple[IntArray, FloatArray]] = []
        self._warned: set[str] = set()

    @classmethod
    def of(cls, trainer: Any, policy: Policy, texts_of: _TextsOf) -> "Trackers | None":
        """None if nothing is reported: not the main process, no logging, or no tracker of
        `TRACKERS`."""
        args = trainer.args
        names = [name for name in TRACKERS if name in (args.report_to or [])]
        reports = names and args.logging_strategy != "no" and trainer.accelerator.is_main_process
        return cls(trainer, policy, names, texts_of) if reports else None

    def add(self, batch: Rollouts) -> None:
        """Adds a step."""
        self.prompt_costs.add(batch.ids_R, batch.learned_R, batch.lengths_R)
        self._groups.append((batch.counts_G, batch.belief_R.mean[batch.first_G]))

    def log(self, step: int) -> None:
        """Passes on the data added since the last call. If a tracker raises, logs one warning and
        continues."""
        if not self._groups:
            return
        counts_G, predicted_G = map(np.concatenate, zip(*self._groups, strict=True))
        self._groups.clear()
        top = self.prompt_costs.top(_ROWS)
        ids = [name for name, *_ in top]
        believed_P, texts = self.policy.estimator.belief(ids).mean.tolist(), self.texts_of(ids)
        rows = [
            (str(row[0]), *row[1:], believed, texts.get(row[0], "")[:LONGEST])
            for row, believed in zip(top, believed_P, strict=True)
        ]
        for name in self.names:
            try:
                TRACKERS[name](self.trainer, _Shown(step, counts_G, predicted_G, rows))
            except Exception as error:
                if name not in self._warned:
                    logger.warning(
                        "%s does not show budgetalloc's histograms and table (%s: %s); training "
                        "continues. The tracker is in report_to: let the trainer's own callback "
                        "start its run, or remove it from report_to.",
                        name,
                        type(error).__name__,
                        error,
                    )
                self._warned.add(name)

    def save(self, folder: Path) -> None:
        """Writes the table's sums into a checkpoint."""
        save_state(folder / PROMPT_COSTS_FILE, self.prompt_costs.state_dict())

    def load(self, folder: Path) -> None:
        """Loads the table's sums. Without them, as after a run without trackers, the table starts
        empty."""
        if (folder / PROMPT_COSTS_FILE).exists():
            self.prompt_costs.load_state_dict(load_state(folder / PROMPT_COSTS_FILE)[0])


def _to_wandb(trainer: Any, shown: _Shown) -> None:
    import wandb

    if wandb.run is None:
        raise RuntimeError("there is no wandb.run")
    wandb.run.log(_media(wandb, shown))


def _to_trackio(trainer: Any, shown: _Shown) -> None:
    import trackio

    trackio.log(_media(trackio, shown))  # raises where there is no run


def _media(tracker: Any, shown: _Shown) -> dict[str, Any]:
    """The row for W&B or trackio, with the step under the trainer's own name."""
    return {
        f"{_GROUP}counts": tracker.Histogram(np_histogram=histogram_of_counts(shown.counts_G)),
        f"{_GROUP}predicted": tracker.Histogram(np_histogram=histogram_of_rates(shown.predicted_G)),
        f"{_GROUP}most_expensive_prompts": tracker.Table(
            columns=list(COLUMNS), data=[list(x) for x in shown.rows]
        ),
        "train/global_step": shown.step,
    }


def _to_tensorboard(trainer: Any, shown: _Shown) -> None:
    from transformers.integrations import TensorBoardCallback

    callbacks = trainer.callback_handler.callbacks
    writer = next((x.tb_writer for x in callbacks if isinstance(x, TensorBoardCallback)), None)
    if writer is None:
        raise RuntimeError("the trainer has no TensorBoardCallback with a writer")
    counts, rates = shown.counts_G, shown.predicted_G
    writer.add_histogram(f"{_GROUP}counts", counts, shown.step, bins=histogram_of_counts(counts)[1])
    writer.add_histogram(f"{_GROUP}predicted", rates, shown.step, bins=histogram_of_rates(rates)[1])
    writer.add_text(f"{_GROUP}most_expensive_prompts", as_markdown(shown.rows), shown.step)
    writer.flush()


def as_markdown(rows: list[tuple[Any, ...]]) -> str:
    """The table as Markdown, because TensorBoard has no tables.

    >>> print(as_markdown([("a|b", 2, 80, None, 0.25, "2 + 2")]))
    | prompt | rollouts | tokens | success | believed | text |
    |---|---|---|---|---|---|
    | a\\|b | 2 | 80 |  | 0.250 | 2 + 2 |
    """
    cells = [
        ["" if x is None else f"{x:.3f}" if isinstance(x, float) else str(x) for x in row]
        for row in rows
    ]
    safe = [[x.replace("|", "\\|").replace("\n", " ") for x in row] for row in cells]
    lines = [f"| {' | '.join(row)} |" for row in [COLUMNS, *safe]]
    return "\n".join([lines[0], "|---" * len(COLUMNS) + "|", *lines[1:]])


TRACKERS: dict[str, Callable[[Any, _Shown], None]] = {
    "wandb": _to_wandb,
    "trackio": _to_trackio,
    "tensorboard": _to_tensorboard,
}

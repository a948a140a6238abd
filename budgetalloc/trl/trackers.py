"""One panel group for W&B, trackio and TensorBoard: the main metrics, histograms and a table. The
trainer's own log supports numbers only, and shows its metrics among those of TRL."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.state import Table, loaded
from budgetalloc.budget import IntArray
from budgetalloc.logs.prompt_texts import LONGEST
from budgetalloc.policies import Policy, Step
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.parts import Part

logger = logging.getLogger(__name__)
COLUMNS = ("prompt", "rollouts", "tokens", "success", "believed", "text")
_SUMS = ("rollouts", "tokens", "rewards", "scored")  # of each prompt; "scored": with a reward
_ROWS = 20
_TextsOf = Callable[[Sequence[Id]], Mapping[Id, str]]
PANEL = (
    *("success", "brier", "brier_pool_mean", "explained", "pool_seen"),
    *("frac_mixed", "advantage/frac_nonzero", "advantage/lean", "fallback", "seconds"),
)
"""The metrics of the panel group. docs/metrics.md says what each means and what is healthy."""
_GROUP = "budgetalloc/"  # trackers group by what is before the first slash


class _Shown(NamedTuple):
    """The data for a tracker at one logging step."""

    step: int  # the trainer's global step
    metrics: dict[str, float]  # those of `PANEL` that are known, by name
    counts_G: IntArray  # rollouts of each group since the last log
    predicted_G: FloatArray  # the predicted success rate of its prompt before its step
    rows: list[tuple[Any, ...]]  # the most expensive prompts so far, by `COLUMNS`


class Trackers(Part):
    """Collects data of the steps, and passes them to the trackers of `report_to` at logging steps,
    with those metrics of the trainer's log that are in `PANEL`.

    The table counts every rollout since training began, and is saved in checkpoints. `success` is
    the mean reward of the rollouts without a hint, in [0, 1]; `believed` is the current posterior
    mean.

    `names` are trackers of `TRACKERS`, and `texts_of` returns the known texts of prompts by id.
    """

    def __init__(self, trainer: Any, policy: Policy, names: list[str], texts_of: _TextsOf) -> None:
        self.trainer, self.policy, self.names, self.texts_of = trainer, policy, names, texts_of
        self._sums = Table(dict.fromkeys(_SUMS, 0.0))
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

    def learn(self, rollouts: Rollouts | None, step: Step) -> dict[str, float]:
        if rollouts is not None:
            ids_P, group_R = factorize(rollouts.ids_R)
            at_P, rewards_R = self._sums.add(ids_P), rollouts.learned_R
            known_R = ~np.isnan(rewards_R)
            columns = np.ones(len(group_R)), rollouts.lengths_R, np.nan_to_num(rewards_R), known_R
            for name, values_R in zip(_SUMS, columns, strict=True):
                self._sums[name][at_P] += np.bincount(group_R, values_R, len(ids_P))
            predicted_G = rollouts.belief_R.mean[rollouts.first_G]
            self._groups.append((rollouts.counts_G, predicted_G))
        return {}

    def most_expensive(self) -> list[tuple[Id, int, int, float | None]]:
        """The 20 prompts with most tokens, most first: prompt, rollouts, tokens, mean reward (None
        if unscored)."""
        names, columns = self._sums.ids, (self._sums[name] for name in _SUMS)
        rollouts_P, tokens_P, rewards_P, scored_P = columns
        return [
            (
                names[p],
                int(rollouts_P[p]),
                int(tokens_P[p]),
                float(rewards_P[p] / scored_P[p]) if scored_P[p] else None,
            )
            for p in np.lexsort((-rollouts_P, -tokens_P))[:_ROWS].tolist()
        ]

    def log(self, step: int, logged: Mapping[str, float | None]) -> None:
        """Passes on the data added since the last call, and metrics of the trainer's log. If a
        tracker raises, logs one warning and continues."""
        if not self._groups:
            return
        counts_G, predicted_G = map(np.concatenate, zip(*self._groups, strict=True))
        self._groups.clear()
        top = self.most_expensive()
        ids = [name for name, *_ in top]
        believed_P, texts = self.policy.estimator.belief(ids).mean.tolist(), self.texts_of(ids)
        rows = [
            (str(row[0]), *row[1:], believed, texts.get(row[0], "")[:LONGEST])
            for row, believed in zip(top, believed_P, strict=True)
        ]
        named = {name: logged.get(f"{_GROUP}{name}") for name in PANEL}
        metrics = {name: value for name, value in named.items() if value is not None}
        for name in self.names:
            try:
                TRACKERS[name](self.trainer, _Shown(step, metrics, counts_G, predicted_G, rows))
            except Exception as error:
                if name not in self._warned:
                    logger.warning(
                        "%s does not show budgetalloc's panels (%s: %s); training "
                        "continues. The tracker is in report_to: let the trainer's own callback "
                        "start its run, or remove it from report_to.",
                        name,
                        type(error).__name__,
                        error,
                    )
                self._warned.add(name)

    def state_dict(self) -> dict[str, Any]:
        """The table's sums, under the key "trackers"."""
        return {"trackers": self._sums.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if "trackers" in state:  # else the run had none, and the table starts empty
            self._sums = loaded(self._sums, state["trackers"])


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
        **{f"{_GROUP}{name}": value for name, value in shown.metrics.items()},
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
    for name, value in shown.metrics.items():
        writer.add_scalar(f"{_GROUP}{name}", value, shown.step)
    writer.add_histogram(f"{_GROUP}counts", counts, shown.step, bins=histogram_of_counts(counts)[1])
    writer.add_histogram(f"{_GROUP}predicted", rates, shown.step, bins=histogram_of_rates(rates)[1])
    writer.add_text(f"{_GROUP}most_expensive_prompts", as_markdown(shown.rows), shown.step)
    writer.flush()


def histogram_of_counts(counts_G: IntArray) -> tuple[IntArray, FloatArray]:
    """How many groups G have each size, and the edges of the bins: one bin per size, at most 128
    bins.

    >>> histogram_of_counts(np.array([2, 2, 4]))
    (array([2, 0, 1]), array([1.5, 2.5, 3.5, 4.5]))
    """
    low, high = int(counts_G.min()), int(counts_G.max())
    width = -(-(high - low + 1) // 128)
    return np.histogram(counts_G, bins=np.arange(low, high + 1 + width, width) - 0.5)


def histogram_of_rates(rates_G: FloatArray) -> tuple[IntArray, FloatArray]:
    """How many rates lie in each twentieth of [0, 1], and the edges of these bins."""
    return np.histogram(rates_G, bins=np.linspace(0, 1, 21))


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

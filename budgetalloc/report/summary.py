"""`Report`: what the rollouts of a finished run were spent on, computed once."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.beliefs.rewards import EQUAL, KINDS, WITHOUT_GRADIENT, check_range, group_kinds
from budgetalloc.errors import BudgetallocError, InputError, check_number, import_optional
from budgetalloc.logs.ledger import Ledger, read_log
from budgetalloc.logs.records import losses
from budgetalloc.offline.comparison import Progress
from budgetalloc.offline.parallel import Workers
from budgetalloc.report.replays import (
    LIMITS,
    POLICIES,
    observed_range,
    replay,
    success_of,
    unit_rewards,
)
from budgetalloc.training.policy_like import resolve_policy

if TYPE_CHECKING:
    import pandas as pd

BELIEF = "Beta(0.5, 0.5), discount 0.9 a visit"
"""What predicts rollouts whose prediction the log lacks."""
NEAR = 0.1
"""A success within this distance of the prediction is as predicted."""
_VERSION = 3  # of the JSON: increased when a key changes its meaning or is removed
_NAMED = 20  # prompts that a report names
_FALL = 0.02  # of success, from the first to the last tenth of the rollouts, that is worth a look


def share(part: float, whole: float) -> float:
    """part / whole, NaN for a whole of 0."""
    with np.errstate(over="ignore"):  # of a damaged log: infinite
        return float(part / whole) if whole else math.nan


@dataclass(frozen=True, eq=False)
class Report:
    """What `report` returns. A group is the scored rollouts of one prompt in one step, or of one
    row if a trainer made several groups of a prompt; shares are of rollouts. `as_json` writes all
    fields but the two frames."""

    log: str
    """The name of the log."""
    kind: str
    """The kind of log, such as "trl"."""
    steps: int
    """Decisions of the policy."""
    trainer_steps: int
    """Steps of the trainer, fewer than `steps` if one has several generation batches."""
    missing_steps: int
    """Steps of the run that the log lacks, 0 where that is not known."""
    run_steps: int
    """Steps of the run, 0 where that is not known."""
    prompts: int
    groups: int
    rollouts: int
    """Rollouts with a reward."""
    unscored: int
    """Rollouts without a reward, which count nowhere else."""
    share_mixed: float
    share_all_fail: float
    share_all_pass: float
    share_tied: float
    share_single: float
    share_wasted: float
    """Without gradient under a group baseline: in groups of two or more with equal rewards."""
    share_as_predicted: float
    """Single rollouts whose success was predicted to within `NEAR`, a part of `share_single`."""
    reward: float
    """Mean, in the log's units."""
    success: float
    """Mean, in [0, 1]."""
    reward_low: float
    reward_high: float
    """The rewards of failure and success, in the log's units."""
    graded: bool
    """Whether success between 0 and 1 occurred."""
    tokens: int | None
    """Of rollouts whose length is known; None if no length is known."""
    wasted_tokens: int | None
    unmeasured: int
    """Rollouts without a length."""
    tokens_per_success: float
    cost_per_success: float
    """In the unit of the run's `cost=`."""
    never_solved: int
    """Prompts."""
    never_solved_rollouts: int
    always_solved: int
    always_solved_rollouts: int
    most_wasted: list[dict[str, Any]]
    """The prompts with most wasted rollouts: `id`, `text`, `rollouts`, `wasted`, mean `success`,
    `wasted_tokens`."""
    predictable: bool
    """Whether the log has predictions, or prompts that came twice."""
    explained: float
    """The share of the variance of success that was predicted before the step; below 0, a constant
    is better."""
    surprise: float
    """Mean |success - prediction|."""
    success_brier: float
    success_brier_constant: float
    """Of the best constant prediction: the variance of success."""
    success_logged: int
    """Rollouts whose prediction the log has; `BELIEF` predicts the others."""
    success_deciles: list[dict[str, float]]
    """`rollouts`, mean `predicted` and mean `success` in tenths of the prediction."""
    notes: dict[str, int]
    """Omissions and assumptions of the reader, with their counts."""
    doubts: list[str]
    """The notes about ambiguous content of the log, to be read first."""
    domains: Mapping[str, Mapping[str, float]]
    """As in the `Ledger`; empty without `domain=`."""
    by_step: "pd.DataFrame"
    """For each step `rollouts`, those by kind of group, and sums of `reward`, `success`,
    `surprise`, `tokens` and `cost`."""
    by_prompt: "pd.DataFrame"
    """For each prompt `visits`, `rollouts`, `wasted` ones, `wasted_tokens`, the sum of
    `success`."""
    policies: list[dict[str, Any]] | None = None
    """The figures of the replays (`budgetalloc.offline.comparison.summarise`). None without a
    replay."""
    why_not: str | None = None
    """Why there is no replay."""
    replay_steps: int | None = None
    replay_logged: int | None = None
    """Steps of this size in the log."""
    replay_rollouts: int | None = None
    """Per step."""
    replay_prompts: int | None = None
    """Per step."""
    replay_seeds: int | None = None
    replay_narrowed: bool = False
    """Whether a step has fewer prompts than the log's, so that groups of two fit."""
    replay_stopped: bool = False
    """Whether Ctrl-C ended the replays, so that `policies` lacks some."""

    @property
    def kinds(self) -> dict[str, float]:
        """The share of rollouts by kind of group, of the kinds in the log."""
        shares = {kind: getattr(self, f"share_{kind}") for kind in KINDS}
        return {kind: x for kind, x in shares.items() if x}

    @property
    def verdict(self) -> str:
        """One line: the run is healthy, or what to look at."""
        return f"Look at {'; '.join(self.concerns)}." if self.concerns else "Healthy."

    @property
    def concerns(self) -> list[str]:
        """What to look at, the most important first; empty for a healthy run."""
        concerns = ["what the log leaves open (CAREFUL)"] if self.doubts else []
        if self.missing_steps:
            concerns.append(
                f"{self.missing_steps:,} of {self.run_steps:,} steps, which are missing"
            )
        concerns += losses(self.notes, self.rollouts, self.unscored)
        if 2 * self.share_wasted > 1 and not self.share_single:
            concerns.append(f"{100 * self.share_wasted:.1f} % of the rollouts without a gradient")
        # before prompts return there is nothing to predict from
        returned = self.by_prompt["visits"].sum() >= 2 * len(self.by_prompt)
        if self.predictable and self.explained < 0 and returned:
            concerns.append("success, which is predicted worse than by a constant")
        time = self.over_time(10)
        first, last = time[0]["success"], time[-1]["success"]
        if len(time) == 10 and last < first - _FALL:
            concerns.append(f"success, which fell from {first:.2f} to {last:.2f}")
        return concerns

    def over_time(self, bins: int) -> list[dict[str, float]]:
        """Figures over time, in at most `bins` runs of consecutive steps with about equally many
        rollouts.

        Returns:
            For each run its `first` and `last` step, its `rollouts`, the shares of rollouts by
            kind, the means `reward` (in the log's units), `success` and `surprise`,
            `tokens_per_success` and `cost_per_success`.
        """
        rollouts_S = self.by_step["rollouts"]
        reached_S = rollouts_S.cumsum() - rollouts_S / 2
        run_S = reached_S * min(bins, len(rollouts_S)) / max(self.rollouts, 1)
        runs = self.by_step.reset_index().groupby(run_S.clip(upper=bins - 1).astype(int).to_numpy())
        sums = runs.sum()
        for name in ("tokens", "cost"):  # unknown, if it is unknown for any step
            sums[name] = runs[name].agg(lambda known_S: known_S.sum(skipna=False))
        table = runs["step"].agg(["first", "last"]).assign(rollouts=sums["rollouts"])
        for kind in KINDS:
            table[kind] = sums[kind] / sums["rollouts"].clip(lower=1)
        for name in ("reward", "success", "surprise"):
            table[name] = sums[name] / sums["rollouts"].where(sums["rollouts"] > 0)
        for name in ("tokens", "cost"):
            table[f"{name}_per_success"] = sums[name] / sums["success"].where(sums["success"] != 0)
        found: list[dict[str, float]] = table.to_dict("records")
        return found


def report(
    source: Any,
    *,
    policies: Sequence[str] = POLICIES,
    seeds: Iterable[int] = range(5),
    steps: int | None = None,
    reward_range: tuple[float, float] | None = None,
    resolution: float = 0.0,
    workers: Workers = None,
    progress: Progress | None = None,
    partial: bool = False,
    **reading: Any,
) -> Report:
    """Reads the log of a finished run and reports the use of its rollouts.

    Args:
        source: A `Ledger`, or a path to any log that `Ledger.read` knows.
        policies: Names to replay on the log, of methods or of a function in your file
            ("mine.py:thirds"); the others are compared with the first.
            Empty: no replay.
        seeds: Seeds of the replays.
        steps: Steps of each replay, at least 1. Left out: as many as the log can answer, or fewer
            if that would take more than about a minute.
        reward_range: The rewards that stand for failure and success. Left out: the range that the
            log has, else 0 and 1, or the lowest and highest reward of the log if rewards lie
            outside [0, 1], with a note. A log with a success column needs none.
        resolution: As in `Options`, in the units of the ledger's rewards. Replays do without it.
        workers: Processes for the replays, or "ray"; by default one process for each core.
        progress: Called with the replays ended and the replays in all.
        partial: Whether Ctrl-C during the replays ends them, and the report has those policies
            whose replays are complete. By default KeyboardInterrupt is raised.
        reading: Passed on to `Ledger.read` with a path, such as `prompt="id"`.

    Raises:
        InputError: the log has no rewards, or a policy is unknown.

    >>> import pandas as pd
    >>> run = report(Ledger.of_frame(pd.DataFrame({
    ...     "step": np.repeat([0, 1], 8), "prompt": (["a"] * 4 + ["b"] * 4) * 2, "length": 10,
    ...     "reward": [0, 0, 0, 0] + [0, 1, 1, 1] + [0, 0, 0, 0] + [1] * 4})), policies=())
    >>> run.rollouts, run.share_wasted, run.wasted_tokens, run.kinds
    (16, 0.75, 120, {'mixed': 0.25, 'all_fail': 0.5, 'all_pass': 0.25})
    >>> run.verdict
    'Look at 75.0 % of the rollouts without a gradient.'
    """
    for policy in policies:
        resolve_policy(policy)  # raises for an unknown name before the log is read
    ledger = source if isinstance(source, Ledger) else read_log(source, **reading)
    given = None if reward_range is None else check_range(reward_range)
    notes, doubts = dict(ledger.notes), list(ledger.notes.doubts)
    try:
        success_R = success_of(ledger, given)
    except InputError:
        if given is not None:
            raise
        given = low, high = observed_range(ledger)  # rewards outside [0, 1]
        success_R = success_of(ledger, given)
        text = f"rewards from {low:g} to {high:g} taken as the range from failure to success"
        notes[text] = int((~np.isnan(success_R)).sum())
    if ledger.kind != "trl":  # there each reward function was looked at
        from budgetalloc.logs.completions import constant_scores  # needs pandas

        frame = ledger.frame
        for text in constant_scores(frame["step"], {"of the log": frame["reward"]}):
            notes[text] = len(frame)
            doubts.append(text)
    if check_number("resolution", resolution, 0, math.inf):
        notes[f"rewards that differ by at most {resolution:g} in a group are equal"] = len(ledger)
    figures = _figures(ledger, success_R, resolution)
    low, high = given or ledger.reward_range or (0.0, 1.0)
    figures |= {"reward_low": low, "reward_high": high, "notes": notes, "doubts": doubts}
    replayed: dict[str, Any] = {"why_not": "no policy was named"}
    if policies:
        by_step = figures["by_step"]
        sizes = {
            "rollouts": max(int(by_step["rollouts"].median()), 2),
            "groups": int(by_step["groups"].median()),
        }
        try:
            log = unit_rewards(ledger, given)
            replayed = replay(
                log,
                policies,
                **sizes,
                seeds=list(seeds),
                steps=steps,
                workers=workers,
                progress=progress,
                partial=partial,
            )
        except KeyboardInterrupt:
            if not partial:
                raise
            replayed = {"why_not": "stopped by Ctrl-C", "replay_stopped": True}
        except (BudgetallocError, ImportError) as error:  # the rest of the report stands
            replayed = {"why_not": str(error)}
    return Report(**figures, **replayed)


def _figures(ledger: Ledger, success_R: Any, resolution: float) -> dict[str, Any]:
    pd = import_optional("pandas", "A report", "logs")
    frame = ledger.frame.assign(success=success_R)
    steps_S = np.unique(frame["step"])
    scored = (frame["reward"].notna() & frame["success"].notna()).to_numpy()
    unscored = int((~scored).sum())
    if not scored.any():
        notes = "; ".join(f"{text}: {count:,}" for text, count in ledger.notes.items())
        none = f"no rollout with a reward ({unscored:,} rollouts have none)"
        raise InputError(
            f"The log holds {none if unscored else 'no row that could be read'}: there is nothing "
            "to report. Is it the right file and reward column (reward=, --reward)?"
            f"{' Left out while reading: ' + notes + '.' if notes else ''}"
        )
    trainer_steps = frame.get("trainer_step", frame["step"]).nunique()
    frame = frame[scored].reset_index(drop=True)
    at_S = np.searchsorted(steps_S, frame["step"])
    ids_P, at_P = factorize(frame["prompt"].tolist())
    visit_R = at_S * len(ids_P) + at_P
    group_R = visit_R
    if "group" in frame:  # a trainer made several groups of one prompt
        names, among_R = np.unique(frame["group"], return_inverse=True)
        group_R = visit_R * len(names) + among_R
    _, opens_G, group_R = np.unique(group_R, return_index=True, return_inverse=True)
    rewards_R, success_R = frame["reward"], frame["success"]
    kind_G, size_G = group_kinds(rewards_R, success_R, group_R, len(opens_G), resolution)
    kind_R, single_R = np.array(KINDS)[kind_G][group_R], (size_G == 1)[group_R]
    wasted_R = np.isin(kind_R, WITHOUT_GRADIENT)
    logged_R = frame["predicted"].between(0, 1).to_numpy()
    own_R = np.nan if logged_R.all() else _own_predictions(at_S, at_P, success_R.to_numpy())
    predicted_R = frame["predicted"].where(logged_R, own_R).to_numpy()
    error_R = np.abs(frame["success"].to_numpy() - predicted_R)
    tokens_R = frame["length"].fillna(0).to_numpy()

    def summed(at_R: Any, of: int, **columns: Any) -> Any:
        return pd.DataFrame({name: np.bincount(at_R, x, of) for name, x in columns.items()})

    by_step = summed(
        at_S,
        len(steps_S),
        rollouts=np.ones(len(frame)),
        **{kind: kind_R == kind for kind in KINDS},
        reward=frame["reward"],
        success=frame["success"],
        surprise=error_R,
        tokens=tokens_R,
        cost=frame["cost"],
    )
    by_step["groups"] = np.bincount(at_S[opens_G], minlength=len(steps_S))
    by_prompt = summed(
        at_P,
        len(ids_P),
        rollouts=np.ones(len(frame)),
        wasted=wasted_R,
        wasted_tokens=tokens_R * wasted_R,
        success=frame["success"],
    )
    by_prompt["visits"] = np.bincount(at_P[np.unique(visit_R, return_index=True)[1]])
    counts = ["rollouts", *KINDS, "tokens"]
    by_step = by_step.astype(dict.fromkeys(counts, np.int64)).set_index(
        pd.Index(steps_S, name="step")
    )
    counts = ["rollouts", "wasted", "wasted_tokens"]
    names = pd.Index(ids_P, dtype=object, name="prompt")
    by_prompt = by_prompt.astype(dict.fromkeys(counts, np.int64)).set_index(names)
    rollouts, passed = len(frame), float(frame["success"].sum())
    measured = bool(frame["length"].notna().any())
    if not measured:
        by_step["tokens"] = np.nan
    rate_P = by_prompt["success"] / by_prompt["rollouts"]
    never, always = by_prompt[rate_P <= EQUAL], by_prompt[rate_P >= 1 - EQUAL]
    variance = max(float((frame["success"] ** 2).mean()) - (passed / rollouts) ** 2, 0.0)
    brier = float((error_R**2).mean())
    return {
        "log": str(ledger.path or "a log in memory"),
        "kind": ledger.kind,
        "steps": len(steps_S),
        "trainer_steps": int(trainer_steps),
        "missing_steps": ledger.notes.missing[0],
        "run_steps": ledger.notes.missing[1],
        "prompts": len(ids_P),
        "groups": len(opens_G),
        "rollouts": rollouts,
        "unscored": unscored,
        **{f"share_{kind}": float((kind_R == kind).mean()) for kind in KINDS},
        "share_wasted": float(wasted_R.mean()),
        "share_as_predicted": float((single_R & (error_R <= NEAR + 1e-9)).mean()),
        "reward": float(frame["reward"].mean()),
        "success": passed / rollouts,
        "graded": bool(frame["success"].between(EQUAL, 1 - EQUAL, inclusive="neither").any()),
        "tokens": int(tokens_R.sum()) if measured else None,
        "wasted_tokens": int(tokens_R[wasted_R].sum()) if measured else None,
        "unmeasured": int(frame["length"].isna().sum()),
        "tokens_per_success": share(tokens_R.sum(), passed) if measured else math.nan,
        "cost_per_success": share(frame["cost"].sum(skipna=False), passed),
        "never_solved": len(never),
        "never_solved_rollouts": int(never["rollouts"].sum()),
        "always_solved": len(always),
        "always_solved_rollouts": int(always["rollouts"].sum()),
        "most_wasted": _most_wasted(by_prompt, ledger.texts, measured),
        "predictable": bool(logged_R.any() or (by_prompt["visits"] > 1).any()),
        "explained": 1 - share(brier, variance if variance > 1e-12 else 0.0),
        "surprise": float(error_R.mean()),
        "success_brier": brier,
        "success_brier_constant": variance,
        "success_logged": int(logged_R.sum()),
        "success_deciles": _deciles(frame["success"], predicted_R),
        "domains": ledger.domains,
        "by_step": by_step,
        "by_prompt": by_prompt,
    }


def _own_predictions(at_S: Any, at_P: Any, success_R: Any) -> Any:
    """The success of each rollout as `BELIEF` predicted it before the step, from the places of its
    step and of its prompt.

    >>> _own_predictions(np.array([0, 0, 1, 3]), np.zeros(4, dtype=int), np.array([1.0, 1, 0, 0]))
    array([0.5       , 0.5       , 0.83333333, 0.60526316])
    """
    belief, prompts = BetaEstimator(discount=0.9), int(at_P.max()) + 1
    _, first_V, visit_R = np.unique(at_S * prompts + at_P, return_index=True, return_inverse=True)
    seen_2V = np.stack([np.bincount(visit_R, success_R), np.bincount(visit_R, 1 - success_R)])
    # the n-th visits of all prompts together
    prompt_V, order_V = at_P[first_V], np.argsort(at_P[first_V], kind="stable")
    visits_P = np.bincount(prompt_V, minlength=prompts)
    number_V = np.empty_like(order_V)
    number_V[order_V] = np.arange(len(order_V)) - np.repeat(visits_P.cumsum() - visits_P, visits_P)
    by_number = np.split(np.argsort(number_V, kind="stable"), np.bincount(number_V).cumsum()[:-1])
    evidence_2P, mean_V = np.zeros((2, prompts)), np.empty(len(first_V))
    for rows in by_number:
        before_2V = evidence_2P[:, prompt_V[rows]]
        alpha_V, beta_V = before_2V + np.array(belief.prior)[:, None]
        mean_V[rows] = alpha_V / (alpha_V + beta_V)
        evidence_2P[:, prompt_V[rows]] = belief.discount * before_2V + seen_2V[:, rows]
    return mean_V[visit_R]


def _most_wasted(
    by_prompt: "pd.DataFrame", texts: Mapping[Id, str], measured: bool
) -> list[dict[str, Any]]:
    first = by_prompt[by_prompt["wasted"] > 0].sort_values("wasted", ascending=False, kind="stable")
    return [
        {
            "id": row.Index,
            "text": texts[row.Index][:200] if row.Index in texts else None,
            "rollouts": row.rollouts,
            "wasted": row.wasted,
            "success": row.success / row.rollouts,
            "wasted_tokens": row.wasted_tokens if measured else None,
        }
        for row in first.head(_NAMED).itertuples()
    ]


def _deciles(success_R: "pd.Series", predicted_R: Any) -> list[dict[str, float]]:
    tenth_R = np.minimum((predicted_R * 10 + 1e-9).astype(np.int64), 9)
    tenths = success_R.to_frame().assign(predicted=predicted_R).groupby(tenth_R)
    table = tenths.mean().assign(rollouts=tenths.size())
    found: list[dict[str, float]] = table[["rollouts", "predicted", "success"]].to_dict("records")
    return found


def as_json(report: Report, indent: int | None = 1) -> str:
    """The report as one flat JSON object; unknown numbers are null.

    Keys: `version` (3), `verdict` (healthy, or what to look at), the fields of `Report` without its
    frames, `success_belief` (what predicted rollouts without a logged prediction), `over_time` (the
    figures of 100 runs of steps) and `limits` (what a replay cannot show).

    >>> import budgetalloc as ba
    >>> log = ba.testing.log_of(ba.testing.three_kinds(), steps=6)
    >>> seen = json.loads(as_json(report(log, policies=())))
    >>> seen["rollouts"], round(seen["share_wasted"], 3)
    (384, 0.667)
    """
    frames = ("by_step", "by_prompt")
    figures = {
        field.name: getattr(report, field.name)
        for field in fields(report)
        if field.name not in frames
    }
    flat = {"version": _VERSION, "verdict": report.verdict, **figures}
    flat |= {"success_belief": BELIEF, "over_time": report.over_time(100), "limits": list(LIMITS)}
    return json.dumps(plain(flat), indent=indent, allow_nan=False)


def plain(value: Any) -> Any:
    """NaN, which JSON lacks, as None."""
    if isinstance(value, dict):
        return {key: plain(x) for key, x in value.items()}
    if isinstance(value, list):
        return [plain(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

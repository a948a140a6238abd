"""The report as JSON."""

import json
import math
from typing import Any

from budgetalloc.beliefs.group_kinds import KINDS
from budgetalloc.report.findings import NAMED, worst
from budgetalloc.report.forecast import BELIEF, share
from budgetalloc.report.policy_replays import LIMITS
from budgetalloc.report.summary import Report
from budgetalloc.report.verdict import verdict

__all__ = ["VERSION", "as_json", "plain"]

VERSION = 2
"""Version of the JSON: increased when a key changes its meaning or is removed."""


def as_json(report: Report, indent: int | None = 1) -> str:
    """The report as one flat JSON object; unknown numbers are null.

    Keys: `version` (2), `log`, `kind`, `verdict` (healthy, or what to look at), `steps`
    (decisions), `trainer_steps`, `missing_steps` (those of the run that the log lacks, 0 where that
    is not known), `prompts`, `groups`, `rollouts` (scored), `unscored`, `broken`; the shares of
    rollouts `share_mixed`, `share_all_fail`, `share_all_pass`, `share_tied`, `share_single` (sum
    1), `share_wasted` (fail, pass, tied) and `share_as_predicted` (single rollouts whose success
    was predicted to within 0.1, a part of `share_single`); `group_share_` with the names of the
    kinds, of groups; `reward` (mean, in the log's units), `success` (mean, in [0, 1]), `reward_low`
    and `reward_high` (success 0 and 1, in the log's units), `graded`; `tokens`, `wasted_tokens`,
    `unmeasured` (rollouts without a length), `tokens_per_success` and `cost_per_success` (in the
    unit of the run's `cost=`); `never_solved`, `always_solved` (prompts), `never_solved_rollouts`,
    `always_solved_rollouts`, `most_wasted` (a list of prompts); of the success of each rollout as
    predicted before its step `explained` (share of its variance), `surprise` (mean |success -
    prediction|), `success_brier`, `success_brier_constant`, `success_logged` (rollouts whose
    prediction the log has), `success_deciles` (a list), `success_belief` (the report's own, for
    rollouts without a logged prediction); `over_time` (a list of runs of steps); `policies` (a
    list, see `budgetalloc.report.policy_replays.Replayed`; null without a replay, and `why_not`),
    `replay_steps`, `replay_rollouts`, `replay_prompts`, `replay_seeds`; `limits`, `notes` and
    `doubts` (the notes to be read first).
    """
    waste = report.waste
    shares = waste.shares()
    group_shares = waste.groups_SK.sum(axis=0) / max(waste.groups, 1)
    never, always = waste.never(), waste.always()
    replayed, forecast = report.replayed, waste.forecast
    flat: dict[str, Any] = {
        "version": VERSION,
        "log": report.name,
        "kind": report.kind,
        "verdict": verdict(report),
    }
    flat |= {
        "steps": len(waste.step_S),
        "trainer_steps": waste.trainer_steps,
        "missing_steps": report.missing[0],
    }
    flat |= {"prompts": len(waste.ids_P), "groups": waste.groups}
    flat |= {"rollouts": waste.rollouts, "unscored": waste.unscored, "broken": waste.broken}
    flat |= {f"share_{kind}": shares[kind] for kind in KINDS}
    flat |= {"share_wasted": share(waste.wasted, waste.rollouts)}
    flat |= {"share_as_predicted": share(waste.as_predicted, waste.rollouts)}
    flat |= {f"group_share_{kind}": x for kind, x in zip(KINDS, group_shares.tolist(), strict=True)}
    flat |= {
        name: share(getattr(waste, f"{name}_S").sum(), waste.rollouts)
        for name in ("reward", "success")
    }
    flat |= {
        "reward_low": waste.reward_range[0],
        "reward_high": waste.reward_range[1],
        "graded": waste.graded,
    }
    flat |= {
        "tokens": waste.tokens,
        "wasted_tokens": waste.wasted_tokens,
        "unmeasured": waste.unmeasured,
    }
    flat |= waste.per_success()
    flat |= {
        "never_solved": len(never),
        "never_solved_rollouts": int(waste.rollouts_P[never].sum()),
    }
    flat |= {
        "always_solved": len(always),
        "always_solved_rollouts": int(waste.rollouts_P[always].sum()),
    }
    flat |= {"most_wasted": worst(waste, report.texts, NAMED)}
    flat |= {
        "explained": forecast.explained,
        "surprise": forecast.surprise,
        "success_brier": forecast.brier,
    }
    flat |= {"success_brier_constant": forecast.constant, "success_logged": forecast.logged}
    flat |= {"success_deciles": forecast.deciles()}
    flat |= {"success_belief": BELIEF, "over_time": waste.over_time(100)}
    flat |= {"policies": replayed and replayed.rows, "why_not": report.why_not or None}
    for name in ("steps", "rollouts", "prompts", "seeds"):
        flat[f"replay_{name}"] = replayed and getattr(replayed, name)
    flat |= {"limits": list(LIMITS), "notes": report.notes, "doubts": list(report.doubts)}
    return json.dumps(plain(flat), indent=indent, allow_nan=False)


def plain(value: Any) -> Any:
    """NaN, which JSON lacks, as None."""
    if isinstance(value, dict):
        return {key: plain(x) for key, x in value.items()}
    if isinstance(value, list):
        return [plain(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

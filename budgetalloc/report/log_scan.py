"""The use of the rollouts of a log."""

import numpy as np

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.beliefs.group_kinds import KINDS, WITHOUT_GRADIENT, group_kinds
from budgetalloc.beliefs.ids import Id, factorize
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import EQUAL, check_range
from budgetalloc.errors import InputError, check_type
from budgetalloc.logs.ledger import Ledger
from budgetalloc.report.forecast import NEAR, Forecast
from budgetalloc.report.success import success_of
from budgetalloc.report.waste import Ints, Waste

__all__ = ["measure"]


def measure(ledger: Ledger, *, reward_range: tuple[float, float] | None = None) -> Waste:
    """Computes the use of the rollouts of a log.

    Args:
        ledger: The log.
        reward_range: The rewards of failure and success; rewards in between are graded. Default:
            the range of the log, else (0, 1). A log with a success column needs none.

    Raises:
        InputError: a reward outside the range, or no reward at all.

    >>> import pandas as pd
    >>> log = Ledger.of_frame(pd.DataFrame({
    ...     "step": np.repeat([0, 1], 8), "prompt": (["a"] * 4 + ["b"] * 4) * 2, "length": 10, "predicted": 0.5,
    ...     "reward": [0, 0, 0, 0] + [0, 1, 1, 1] + [0, 0, 0, 0] + [1] * 4}))
    >>> waste = measure(log)
    >>> waste.rollouts, waste.wasted, waste.wasted_tokens
    (16, 12, 120)
    >>> waste.shares()
    {'mixed': 0.25, 'all_fail': 0.5, 'all_pass': 0.25, 'tied': 0.0, 'single': 0.0}
    >>> [waste.ids_P[at] for at in waste.never()]
    ['a']
    >>> round(waste.forecast.brier, 3)  # the log has predictions, 1/2 for every rollout
    0.25
    """
    check_type("ledger", ledger, Ledger, "a log, such as ba.Ledger.read(path)")
    given = None if reward_range is None else check_range(reward_range)
    frame = ledger.frame.assign(success=success_of(ledger, given))
    step_S, step_R = np.unique(frame["step"].to_numpy(), return_inverse=True)
    scored_R = (frame["reward"].notna() & frame["success"].notna()).to_numpy()
    unscored = int((~scored_R).sum())
    if not scored_R.any():
        notes = "; ".join(f"{text}: {count:,}" for text, count in ledger.notes.items())
        raise InputError(
            f"The log holds no rollout with a reward ({unscored} rollouts have none): there is "
            "nothing to report. Is "
            "it the right file and reward "
            f"column?{' Left out while reading: ' + notes + '.' if notes else ''}"
        )
    trainer_steps = frame.get("trainer_step", frame["step"]).nunique()
    ids_P, prompt_R = factorize(frame["prompt"][scored_R].tolist())
    step_R = step_R[scored_R]
    order = np.lexsort((prompt_R, step_R))
    frame, step_R, prompt_R = frame[scored_R].iloc[order], step_R[order], prompt_R[order]
    names = ("reward", "success", "predicted", "length", "cost")
    rewards_R, success_R, logged_R, length_R, cost_R = (
        frame[name].to_numpy(dtype=np.float64) for name in names
    )
    # Sums by group, then by step and by prompt, of rows sorted by step and prompt.
    opens_R = np.ones(len(step_R), dtype=bool)
    opens_R[1:] = (step_R[1:] != step_R[:-1]) | (prompt_R[1:] != prompt_R[:-1])
    rows_G = np.flatnonzero(opens_R)
    step_G, prompt_G, size_G = (
        step_R[rows_G],
        prompt_R[rows_G],
        np.diff(np.append(rows_G, len(step_R))),
    )
    tokens_G = np.add.reduceat(np.nan_to_num(length_R), rows_G)
    success_G = np.add.reduceat(success_R, rows_G)
    kind_G, _ = group_kinds(rewards_R, success_R, np.cumsum(opens_R) - 1, len(rows_G))
    known_R = (logged_R >= 0) & (logged_R <= 1)  # False for NaN
    ids_R = [ids_P[at] for at in prompt_R.tolist()]
    mean_G = _predictions(step_G, rows_G, ids_R, success_R)
    predicted_R = np.where(known_R, logged_R, np.repeat(mean_G, size_G))
    error_R = np.abs(success_R - predicted_R)
    wasted_G = np.isin(kind_G, [KINDS.index(kind) for kind in WITHOUT_GRADIENT])
    cell_G, steps, prompts = step_G * len(KINDS) + kind_G, len(step_S), len(ids_P)

    def by_kind(x_G: FloatArray | Ints | None) -> Ints:
        table = np.bincount(cell_G, x_G, steps * len(KINDS)).reshape(steps, -1)
        return np.rint(table).astype(np.int64)

    def by_step(x_R: FloatArray) -> FloatArray:
        return np.bincount(step_G, np.add.reduceat(x_R, rows_G), steps).astype(np.float64)

    def by_prompt(x_G: FloatArray | Ints | None) -> Ints:
        return np.rint(np.bincount(prompt_G, x_G, prompts)).astype(np.int64)

    return Waste(
        step_S=step_S,
        groups_SK=by_kind(None),
        rollouts_SK=by_kind(size_G),
        tokens_SK=by_kind(tokens_G),
        reward_S=by_step(rewards_R),
        success_S=by_step(success_R),
        surprise_S=by_step(error_R),
        cost_S=by_step(cost_R),
        ids_P=ids_P,
        visits_P=by_prompt(None),
        rollouts_P=by_prompt(size_G),
        wasted_P=by_prompt(size_G * wasted_G),
        wasted_tokens_P=by_prompt(tokens_G * wasted_G),
        successes_P=np.bincount(prompt_G, success_G, prompts).astype(np.float64),
        forecast=Forecast.of(success_R, predicted_R, int(known_R.sum())),
        as_predicted=int((error_R[rows_G[size_G == 1]] <= NEAR + 1e-9).sum()),
        reward_range=given or ledger.reward_range or (0.0, 1.0),
        graded=bool(((success_R > EQUAL) & (success_R < 1 - EQUAL)).any()),
        trainer_steps=int(trainer_steps),
        unscored=unscored,
        unmeasured=int(np.isnan(length_R).sum()),
        broken=ledger.notes["broken row"],
    )


def _predictions(step_G: Ints, rows_G: Ints, ids_R: list[Id], success_R: FloatArray) -> FloatArray:
    """The mean success of each group as the report's own belief predicted it before the step."""
    belief = BetaEstimator(discount=0.9)  # `forecast.BELIEF`
    mean_G = np.zeros(len(step_G))
    ends = np.flatnonzero(np.diff(step_G)) + 1
    for groups in np.split(np.arange(len(step_G)), ends):
        start = rows_G[groups[0]]
        end = rows_G[groups[-1] + 1] if groups[-1] + 1 < len(rows_G) else len(ids_R)
        mean_G[groups] = belief.belief([ids_R[at] for at in rows_G[groups].tolist()]).mean
        belief.observe(ids_R[start:end], success_R[start:end])
        belief.tick()
    return mean_G

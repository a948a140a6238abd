"""Where rollouts went: by brute force, and on a logged run of a real model."""

import os
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgetalloc import InputError, Ledger
from budgetalloc.beliefs.group_kinds import KINDS
from budgetalloc.report.log_scan import measure

NAN = float("nan")
DATA = Path(os.environ.get("BUDGETALLOC_DATA", Path(__file__).parents[3] / "shared" / "data"))
LOG = DATA / "dsr_sub_grpo_history.csv.gz"


def log(rows, lengths=None):
    """From (step, id, reward) rows."""
    steps, ids, rewards = zip(*rows, strict=True) if rows else ((), (), ())
    frame = pd.DataFrame({"step": steps, "prompt": pd.Series(ids, dtype=object), "reward": rewards}, dtype=object)
    return Ledger.of_frame(frame if lengths is None else frame.assign(length=lengths))


def brute(rows):
    """Rollouts by kind, from the definition."""
    groups = defaultdict(list)
    for step, name, reward in rows:
        if reward == reward:
            groups[step, name].append(reward)
    counted = dict.fromkeys(KINDS, 0)
    for rewards in groups.values():
        kind = "mixed" if len(set(rewards)) > 1 else {0.0: "all_fail", 1.0: "all_pass"}.get(rewards[0], "tied")
        counted["single" if len(rewards) == 1 else kind] += len(rewards)
    return counted


ROWS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["a", "b", 7]), st.sampled_from([0.0, 1.0, 0.5, NAN])), min_size=1
)


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_every_rollout_is_counted_once_under_its_kind(rows):
    if all(np.isnan(reward) for _, _, reward in rows):
        rows = [*rows, (0, "a", 1.0)]
    waste = measure(log(rows))
    expected = brute(rows)
    by_kind = dict(zip(KINDS, waste.rollouts_SK.sum(axis=0).tolist(), strict=True))
    assert by_kind == expected
    assert waste.wasted == expected["all_fail"] + expected["all_pass"] + expected["tied"]
    assert waste.as_predicted <= expected["single"]
    assert waste.wasted == waste.wasted_P.sum()
    assert waste.rollouts + waste.unscored == len(rows)
    assert waste.rollouts_P.sum() == waste.rollouts == sum(row["rollouts"] for row in waste.over_time(3))
    never = {x for x in {r[1] for r in rows} if {r[2] for r in rows if r[1] == x and r[2] == r[2]} == {0.0}}
    assert {waste.ids_P[at] for at in waste.never()} == never


def test_forecasts_of_prompts_with_fixed_rates_are_calibrated():
    rng = np.random.default_rng(0)
    rate_P = rng.beta(0.5, 0.5, 400)
    steps, ids = np.repeat(np.arange(30), 400 * 4), np.tile(np.repeat(np.arange(400), 4), 30)
    seen = measure(log(list(zip(steps, ids.tolist(), rng.random(len(ids)) < rate_P[ids], strict=True)))).forecast
    for row in seen.deciles():
        assert row["success"] == pytest.approx(row["predicted"], abs=0.08)
    assert seen.explained > 0.3


def test_tokens_are_counted_where_lengths_are_known():
    rows = [(0, "a", 0.0), (0, "a", 0.0), (0, "b", 0.0), (0, "b", 1.0)]
    waste = measure(log(rows, [5, -1, 7, 8]))
    assert (waste.tokens, waste.wasted_tokens, waste.unmeasured) == (20, 5, 1)
    assert measure(log(rows)).tokens is None


def test_rewards_of_another_range_are_mapped():
    rows = [(0, "a", -1.0), (0, "a", -1.0), (0, "b", 1.0), (0, "b", 1.0), (0, "c", 0.0), (0, "c", 0.0)]
    waste = measure(log(rows), reward_range=(-1, 1))
    assert waste.rollouts_SK.tolist() == [[0, 2, 2, 2, 0]]
    assert waste.graded


@pytest.mark.parametrize(
    ("ledger", "options", "said"),
    [
        (log([(0, "a", -1.0)]), {}, "reward of -1, outside"),
        (log([(0, "a", NAN)]), {}, "no rollout with a reward"),
        (log([]), {}, "no rollout with a reward"),
        (log([(0, "a", 1.0)]), {"reward_range": (1, 0)}, "reward_range"),
        ([], {}, "ledger="),
    ],
)
def test_refusals(ledger, options, said):
    with pytest.raises(InputError, match=said):
        measure(ledger, **options)


def test_a_last_step_with_few_rollouts_is_no_run_of_its_own():
    rows = [(s, x, float(s == 9)) for s in range(10) for x in range(1 if s == 9 else 50) for _ in range(2)]
    runs = measure(log(rows)).over_time(9)
    assert [(row["first"], row["last"]) for row in runs][-1] == (8, 9)
    assert [(row["first"], row["last"]) for row in runs][:-1] == [(s, s) for s in range(8)]
    assert len(measure(log(rows)).over_time(1)) == 1


@pytest.mark.skipif(not LOG.exists(), reason="the logged rewards are not here")
def test_a_logged_run_of_a_real_model_has_its_known_answer():
    import csv
    import gzip

    with gzip.open(LOG, "rt") as file:
        rows = np.array([[int(x) for x in row] for row in list(csv.reader(file))[1:]])
    prompt_G, visit_G, passed_G, n_G = rows[np.argsort(rows[:, 1], kind="stable")].T
    at_R = np.repeat(np.arange(len(n_G)), n_G)
    rewards_R = (np.arange(len(at_R)) - np.repeat(n_G.cumsum() - n_G, n_G) < passed_G[at_R]) * 1.0
    waste = measure(log(list(zip(visit_G[at_R], prompt_G[at_R].tolist(), rewards_R, strict=True))))
    shares = waste.shares()
    assert round(waste.wasted / waste.rollouts, 3) == 0.490
    assert (round(shares["all_fail"], 3), round(shares["all_pass"], 3)) == (0.309, 0.181)
    assert (len(waste.ids_P), waste.groups) == (1209, 64_000)
    assert 0.5 < waste.forecast.explained < 0.6

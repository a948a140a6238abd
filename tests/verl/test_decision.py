"""Rows and counts of a step."""

from collections import Counter

import pytest

import budgetalloc as ba
from budgetalloc.training.parts import Host
from budgetalloc.training.prompts import Prompts
from budgetalloc.verl.decision import rows_to_roll_out
from budgetalloc.verl.settings import Settings


class Rows(list):
    """What `Prompts` uses of a `datasets.Dataset`."""

    column_names = ("prompt", "name", "subject")

    def __getitem__(self, at):
        return [row[at] for row in self] if isinstance(at, str) else super().__getitem__(at)


SUBJECTS = ["math", "code", "code", "chat", None]
ROWS = ({"prompt": f"p{at % 5}", "name": f"p_{at % 5}", "subject": SUBJECTS[at % 5]} for at in range(15))
PROMPTS = Prompts(Rows(ROWS), "name")


def decided(candidates, own_ids=("p_0", "p_1", "p_0"), rollouts=12):
    given = {"policy": "thompson", "candidates": candidates, "floor": 2}
    settings = Settings.read(given, deviation=True, penalty=False)
    session = settings.session
    session.pool = () if candidates == 1 else PROMPTS.pool
    session.begin(own_ids, rollouts, 4)
    return session.step, rows_to_roll_out(session, session.request(), own_ids, None if candidates == 1 else PROMPTS)


@pytest.mark.parametrize(("candidates", "prompts"), [(1, 2), (2, 4), ("all", 5)])
def test_counts_sum_to_the_budget_and_rows_of_a_prompt_take_turns(candidates, prompts):
    step, (rows, ids, counts) = decided(candidates)
    assert len(step.ids_P) == prompts
    assert sum(counts) == 12
    assert len(set(rows)) == len(rows) == len(ids) == len(counts)
    own = ["p_0", "p_1", "p_0"] if candidates == 1 else [f"p_{at % 5}" for at in range(15)]
    assert [own[row] for row in rows] == ids
    of_prompt = Counter()
    for name, count in zip(ids, counts, strict=True):
        of_prompt[name] += count
    assert min(of_prompt[name] for name in step.ids_P) >= 2  # the floor
    for name in of_prompt:
        shares = [count for each, count in zip(ids, counts, strict=True) if each == name]
        shares += [0] * (own.count(name) - len(shares))
        assert max(shares) - min(shares) <= 1


def test_prompts_without_rollouts_are_left_out():
    session = Settings.read({"policy": "adaptive"}, deviation=True, penalty=False).session
    assert session.options.bounds.candidates == "all"
    session.pool = PROMPTS.pool
    session.begin([], 3, 4)
    rows, ids, counts = rows_to_roll_out(session, session.request(), [], PROMPTS)
    assert sum(counts) == 3
    assert all(counts)
    assert len(set(ids)) <= 3
    assert len(rows) == len(counts)


@pytest.mark.parametrize("candidates", [3, "all"])
def test_quotas_are_kept_whatever_the_batch_holds(candidates):
    shares = {"math": [0.5, 0.75], "code": [0.0, 0.25]}  # lists, as a configuration has them
    given = {"policy": "thompson", "candidates": candidates, "domain": "subject", "quotas": shares}
    settings = Settings.read(given, deviation=True, penalty=False)
    session = settings.session
    session.pool = PROMPTS.pool
    session.attach(Host(PROMPTS, (12,), 6))
    session.begin(["p_1", "p_2"], 12, 6)
    counts = Counter(session.request())
    assert counts.total() == 12
    assert 6 <= counts["p_0"] <= 9
    assert counts["p_1"] + counts["p_2"] <= 3


def test_ids_may_hold_underscores_and_one_prompt_s_rows_one_name():
    assert list(PROMPTS.pool) == [f"p_{at}" for at in range(5)]
    assert PROMPTS.rows_of_one["p_2"] == [2, 7, 12]
    assert ba.uniform().allocate(["p_0"], ba.Budget(rollouts=2)).tolist() == [2]


def test_later_rows_of_a_prompt_do_not_depend_on_what_else_is_requested():
    session = Settings.read({"policy": "ar3po", "floor": 0}, deviation=True, penalty=False).session
    session.pool = PROMPTS.pool
    session.begin(["p_0", "p_1"], 16, 4)

    def rows(ids_R, earlier, name):
        found = zip(*rows_to_roll_out(session, ids_R, [], PROMPTS, earlier), strict=True)
        return [(row, count) for row, own, count in found if own == name]

    alone = rows(["p_1"] * 4, {"p_1": 1}, "p_1")
    assert rows(["p_0"] * 3 + ["p_1"] * 4, {"p_0": 2, "p_1": 1}, "p_1") == alone
    assert sum(count for _, count in alone) == 4
    assert any(rows(["p_1"], {"p_1": turn}, "p_1") != rows(["p_1"], {"p_1": 1}, "p_1") for turn in range(2, 9))

"""What verl's agent loops report, read from the fields of their outputs, without verl."""

import pytest

from budgetalloc.verl.batches import fields_of, reports


def test_the_first_place_that_has_a_value_counts():
    extra = {"turns": 3, "api_calls": 2, "reward_extra_info": {"api_calls": 9, "judge_seconds": 0.5}}
    rows = [{"num_turns": 8, "metrics": {"tool_calls": 0.0}, "extra_fields": extra}, {"extra_fields": extra}]
    found = reports(rows, ["turns", "tool_seconds", "api_calls", "judge_seconds", "unknown"])
    assert found == {
        "turns": [8, 3],
        "tool_seconds": [0.0, None],
        "api_calls": [2, 2],
        "judge_seconds": [0.5, 0.5],
        "unknown": [None, None],
    }


@pytest.mark.parametrize("odd", [None, 3, "text", [1]])
def test_fields_of_another_shape_report_nothing(odd):
    row = {"num_turns": None, "metrics": odd, "extra_fields": odd}
    assert reports([row], ["turns", "tool_seconds", "calls"]) == {
        "turns": [None],
        "tool_seconds": [None],
        "calls": [None],
    }


def test_only_the_fields_that_are_needed_are_fetched():
    assert fields_of([]) == []
    assert fields_of(["calls"]) == ["extra_fields"]
    assert fields_of(["turns", "tool_seconds"]) == ["num_turns", "metrics", "extra_fields"]

import golden
import pytest

RECORD = {
    "steps": [{"ids": "a", "mean": 0.5}, {"ids": "b", "mean": 0.0}],
    "metrics": [{"success": 0.5, "seconds": 1.0}],
    "weights": "w",
}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, []),
        ({"weights": "v"}, ["the final weights"]),
        ({"steps": [RECORD["steps"][0], {"ids": "c", "mean": 0.0}]}, ["steps, step 2, 1 of 2: ids b | c"]),
        ({"metrics": [{"success": 0.25, "seconds": 1.0}]}, ["metrics, step 1, 1 of 1: success 0.5 | 0.25"]),
        ({"metrics": [{"success": 0.5, "seconds": 9.0, "new": 1.0}]}, []),
        ({"steps": RECORD["steps"][:1]}, ["the number of steps"]),
        ({"error": "InputError: no"}, ["error: None | InputError: no"]),
    ],
)
def test_every_difference_is_named_and_seconds_and_new_metrics_are_none(changed, words):
    assert list(golden.differences(RECORD, RECORD | changed)) == words


def test_a_session_is_recorded_alike_each_time_and_another_policy_differs():
    once = golden.looped("adaptive")
    assert list(golden.differences(once, golden.looped("adaptive"))) == []
    assert [each.split(",")[0] for each in golden.differences(once, golden.looped("spo"))] == ["steps", "metrics"]

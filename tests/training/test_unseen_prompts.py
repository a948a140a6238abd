"""The warning that prompts do not return."""

import numpy as np

from budgetalloc.training.unseen_prompts import UnseenPromptsWarning


def test_prompts_that_never_return_are_said_once(caplog):
    watch = UnseenPromptsWarning()
    for cold in [True] * 19 + [False] + [True] * 19:
        watch.check_step(np.array([True, cold]))
    assert not caplog.records
    for _ in range(30):
        watch.check_step(np.array([True, True]))
    assert len(caplog.records) == 1
    assert "candidates='all'" in caplog.text

"""What goes on for many steps in a row is said once."""

import numpy as np

from budgetalloc.training.unseen_prompts import Watch


def test_prompts_that_never_return_are_said_once(caplog):
    watch = Watch()
    for cold in [True] * 19 + [False] + [True] * 19:
        watch.look_at_prompts(np.array([True, cold]))
    assert not caplog.records
    for _ in range(30):
        watch.look_at_prompts(np.array([True, True]))
    assert len(caplog.records) == 1
    assert "candidates='all'" in caplog.text

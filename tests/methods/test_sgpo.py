"""sGPO: group sizes by hand, phases, and who is left out."""

import numpy as np
import pytest

from budgetalloc import Budget
from budgetalloc.methods.sgpo import sgpo, sgpo_group

OFFLINE = {f"p{k}": (k, 8) for k in range(9)}
SIZE = [0, 8, 4, 4, 2, 2, 2, 0, 0]  # the smallest of 2, 4, 8 that is at least 8 / k; none for 0 and above 3/4


def test_group_sizes():
    assert sgpo_group(np.arange(9) / 8).tolist() == SIZE


@pytest.mark.parametrize(("steps", "size"), [(0, 2), (1, 2), (2, 4), (4, 4), (5, 8), (50, 8)])
def test_a_phase_rolls_out_its_own_group_size(steps, size):
    policy = sgpo(offline=OFFLINE, phases=(2, 5), unsolved=0.0)
    for _ in range(steps):
        policy.observe(["p4"], [1])
    inside = {x for x, n in zip(OFFLINE, SIZE, strict=True) if n == size}
    counts_P = policy.allocate(list(OFFLINE), Budget(rollouts=size * len(inside), floor=0))
    assert {x: int(n) for x, n in zip(OFFLINE, counts_P, strict=True) if n} == dict.fromkeys(inside, size)


def test_a_share_of_the_unsolved_joins():
    joined = [
        sgpo(offline={"none": (0, 8), "half": (4, 8)}, seed=seed).allocate(["none", "half"], Budget(2, floor=0))[0]
        for seed in range(1500)
    ]
    # When it joins, one of the two is taken at random.
    assert np.mean(np.array(joined) > 0) == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / 1500))

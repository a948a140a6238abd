"""Pilot-Commit: who is committed to."""

from policy_steps import play

from budgetalloc import Budget
from budgetalloc.methods.pilot_commit import pilot_commit


def test_pilot_commit_commits_to_the_prompts_whose_pilots_varied():
    ids = list(range(64))
    rates = {k: [0.0, 0.5, 1.0, 0.5][k % 4] for k in ids}
    counts, _ = play(pilot_commit(pilot=4, group=16, seed=0), ids, Budget(256, floor=0), rates)
    assert counts.shape[0] == 2
    assert counts[0].sum() == 128
    assert set(counts[0].tolist()) == {0, 4}
    assert not counts[1][[k for k in ids if rates[k] != 0.5]].any()

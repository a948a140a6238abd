"""The oracle of the learning benchmark: exact rates of the model before each step."""

import numpy as np
import oracle
import pytest
import run
from mixes import MIXES

from budgetalloc.cli.testbed import skills


class Trainer:
    model = processing_class = None

    class accelerator:  # noqa: N801
        unwrap_model = staticmethod(lambda model: model)


def test_prompts_that_are_no_candidates_get_no_rollouts(monkeypatch):
    """A large pool has 1,024 candidates; the others have the rate 1, at which every weight is 0."""
    rows = MIXES["seen_once"].rows(0)
    monkeypatch.setattr(oracle, "probability", lambda model, tokenizer, texts, answers: [0.5] * len(texts))
    policy = oracle.policy("oracle", Trainer(), MIXES["seen_once"], rows, 0)
    ids = [int(row["prompt_id"]) for row in rows]
    mean_P = policy.belief(ids).mean
    assert (mean_P < 0.6).sum() == 1024
    step = policy.begin(ids, run.ba.Budget(rollouts=256, floor=0, min_group=1))
    counts_P = step.request()
    assert counts_P.sum() == 256
    assert not counts_P[mean_P > 0.9].any()


def test_a_damaged_oracle_is_late_or_noisy(monkeypatch):
    rows = MIXES["u_shape"].rows(0)
    ids = [int(row["prompt_id"]) for row in rows if not skills.is_trap(int(row["prompt_id"]))]
    rate = [0.0]
    monkeypatch.setattr(oracle, "probability", lambda model, tokenizer, texts, answers: [rate[0]] * len(texts))
    late = oracle.Exact(Trainer(), MIXES["u_shape"], rows, 0, choice=2, baseline=1)
    chosen, compared = [], []
    for rate[0] in (0.1, 0.2, 0.3, 0.4):
        chosen.append(late.belief(ids).mean[0])
        compared.append(late.baseline_belief(ids[:1], [0, 0], [1, 0]).mean[1])
        late.step += 1
    assert chosen == pytest.approx([0.1, 0.1, 0.1, 0.2])  # the oldest that there is, until there are two older ones
    assert compared == pytest.approx([0.1, 0.1, 0.2, 0.3])

    rate[0] = 0.5
    noisy = oracle.Exact(Trainer(), MIXES["u_shape"], rows, 0, noise=1.0)
    mean_P = noisy.belief(ids).mean
    assert np.std(np.log(mean_P / (1 - mean_P))) == pytest.approx(1.0, abs=0.1)
    assert (noisy.belief(ids).mean == mean_P).all()  # within a step
    noisy.step += 1
    assert (noisy.belief(ids).mean != mean_P).any()

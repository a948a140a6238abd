"""The plain loop of integrations/plain_loop: a tiny Llama learns, with each kind of policy."""

from collections import Counter

import numpy as np
import pytest
import torch
from conftest import SYMBOLS, fresh_model, make_tokenizer
from plain_loop import log_probability, sample, train

import budgetalloc as ba
from budgetalloc.training.session import Session

pytestmark = pytest.mark.slow

TEXTS = {f"q{n}": f"{n:03d}=" for n in range(24)}


def low_digit(name, answer):
    return float(answer[:1].isdigit() and answer[0] < "5")


SETTINGS = {"prompts": 8, "group": 4, "max_new_tokens": 3, "pad_token_id": 11}


def attach(policy, **options):
    return Session(policy, ["reward"], pool=list(TEXTS), trainer_scale="group", **options)


def trained(session, steps=2):
    torch.manual_seed(0)
    model = fresh_model()
    given = model, make_tokenizer(), TEXTS, low_digit, session, steps
    return model, list(train(*given, learning_rate=1e-2, **SETTINGS))


KINDS = {
    "uniform": ba.uniform,
    "knapsack": ba.knapsack,
    "thompson": ba.thompson,
    "adaptive": ba.adaptive,
    "rounds": ba.methods.reinforce_ada,
    "keeps a part": ba.methods.pods,
    "a baseline of its own": ba.methods.spo,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_policy_spends_the_budget_and_trains(kind):
    policy = KINDS[kind](seed=0)
    model, run = trained(attach(policy))
    assert [seen["step"] for seen in run] == [0, 1]
    total = 32 * policy.needs.generate
    assert all(sum(seen["counts"].values()) <= total for seen in run)
    assert kind == "rounds" or all(sum(seen["counts"].values()) == total for seen in run)
    assert kind != "uniform" or all(set(seen["counts"].values()) == {4} for seen in run)
    moved = [not torch.equal(a, b) for a, b in zip(model.parameters(), fresh_model().parameters(), strict=True)]
    assert any(moved)
    assert policy.estimator.step == 2


def test_the_model_learns():
    _, run = trained(attach(ba.adaptive(seed=0)), steps=30)
    assert np.mean([seen["reward"] for seen in run[-5:]]) > np.mean([seen["reward"] for seen in run[:5]]) + 0.2


def test_a_resumed_run_decides_as_one_that_never_stopped(tmp_path):
    """The third step, given the rewards of the first two as they stand in the ledger."""
    _, whole = trained(attach(ba.knapsack(seed=3), ledger=tmp_path / "ledger.jsonl"), steps=4)
    ledger = ba.Ledger.read(tmp_path / "ledger.jsonl")
    assert Counter(ledger.frame.step.tolist()) == dict.fromkeys(range(4), 32)
    early, late = attach(ba.knapsack(seed=3)), attach(ba.knapsack(seed=3))
    for at in range(2):
        rows = np.flatnonzero(ledger.frame.step.to_numpy() == at)
        early.policy.observe([ledger.frame.prompt.tolist()[k] for k in rows], ledger.frame.reward.to_numpy()[rows])
    early.save(tmp_path / "beliefs.npz")
    late.load(tmp_path / "beliefs.npz")
    _, rest = trained(late, steps=1)
    assert (rest[0]["step"], rest[0]["counts"]) == (2, whole[2]["counts"])


def test_the_gradient_is_that_of_the_cores_advantages():
    """One step of plain SGD by hand, from the rows that the loop sampled."""
    seen = []

    def reward(name, answer):
        seen.append((name, answer))
        return low_digit(name, answer)

    torch.manual_seed(0)
    model, tokenizer = fresh_model(), make_tokenizer()
    rows = []
    original = train.__globals__["sample"]
    train.__globals__["sample"] = lambda *a, **k: rows.extend(made := original(*a, **k)) or made
    gradients = []
    step = torch.optim.AdamW.step
    try:
        torch.optim.AdamW.step = lambda self: gradients.extend(p.grad.clone() for p in self.param_groups[0]["params"])
        list(train(model, tokenizer, TEXTS, reward, attach(ba.uniform()), 1, **SETTINGS))
    finally:
        train.__globals__["sample"], torch.optim.AdamW.step = original, step
    advantages_R = ba.group_advantages([low_digit(*x) for x in seen], [name for name, _ in seen])
    tokens = sum(len(written) for _, written in rows)
    loss = sum(-a * log_probability(model, [row])[0] for a, row in zip(advantages_R, rows, strict=True)) / tokens
    loss.backward()
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_completions_end_with_the_end_of_the_sequence():
    """With it, and without the padding of longer ones; their log-probability is that of the model's own logits."""
    torch.manual_seed(0)
    model, tokenizer = fresh_model(), make_tokenizer()
    rows = sample(model, tokenizer, [TEXTS["q1"], "7="] * 40, max_new_tokens=6, pad_token_id=11)
    end = SYMBOLS.index("<eos>")
    assert {tuple(prompt) for prompt, _ in rows} == {(0, 0, 1, 10), (7, 10)}
    assert any(len(written) < 6 for _, written in rows)
    assert all(written[-1] == end if len(written) < 6 else end not in written[:-1] for _, written in rows)
    for (prompt, written), logp in zip(rows[:4], log_probability(model, rows[:4]).tolist(), strict=True):
        log_TV = model(input_ids=torch.tensor([prompt + written])).logits[0].log_softmax(-1)
        alone = sum(log_TV[len(prompt) + k - 1, token].item() for k, token in enumerate(written))
        assert logp == pytest.approx(alone, abs=1e-4)

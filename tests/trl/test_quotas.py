"""Shares of the rollouts by domain, on TRL's real trainer: kept at every step, or refused before the training."""

import numpy as np
import pytest
from datasets import Dataset

import budgetalloc as ba
from budgetalloc import BudgetError, InputError, UnsupportedError
from budgetalloc.policies.pacing_policy import Paced
from budgetalloc.trl import AdaptiveGRPOCallback

pytestmark = pytest.mark.slow
NAMES = ["math", "code", "code", "chat", "code", None]


def rows(count=24):
    """Four rows of math and of chat, four of no domain, twelve of code."""
    return Dataset.from_list([{"prompt": f"{n:03d}=", "prompt_id": n, "subject": NAMES[n % 6]} for n in range(count)])


def trained(build, policy, **given):
    """The shares of the rollouts by domain at every step, from the prompts that were really generated."""
    trainer = build(rows(), max_steps=4)
    prompts, generate = [], trainer._generate

    def recording_generate(texts):
        prompts.append(list(texts))
        return generate(texts)

    trainer._generate = recording_generate
    callback = AdaptiveGRPOCallback(trainer, policy, domain="subject", **given)
    trainer.add_callback(callback)
    trainer.train()
    assert [len(texts) for texts in prompts] == [16] * 4
    domains = [[NAMES[int(text[:3]) % 6] for text in texts] for texts in prompts]
    return trainer, [{name: names.count(name) / 16 for name in NAMES} for names in domains]


@pytest.mark.parametrize(
    ("policy", "bounds"),
    [
        (ba.adaptive(), {}),
        (ba.adaptive(), {"candidates": 2}),
        (ba.adaptive(), {"min_group": 2, "cap": 4}),
        (ba.knapsack(), {"candidates": "all", "quantum": 2}),
        (ba.thompson(), {"candidates": 3, "min_group": 3, "cap": 8}),
        (ba.uniform(), {"candidates": "all"}),
    ],
)
def test_shares_are_kept_at_every_step(build, policy, bounds):
    trainer, steps = trained(build, policy, quotas={"math": (0.5, 0.625), "code": (0.0, 0.25)}, **bounds)
    for shares in steps:
        assert 0.5 <= shares["math"] <= 0.625
        assert shares["code"] <= 0.25
    logged = [entry for entry in trainer.state.log_history if "budgetalloc/share/math" in entry]
    assert [entry["budgetalloc/share/math"] for entry in logged] == [shares["math"] for shares in steps]
    assert [entry["budgetalloc/share/code"] for entry in logged] == [shares["code"] for shares in steps]


def test_without_quotas_the_shares_are_others(build):
    """The quota of the test above binds: the recommended policy alone gives math a sixth."""
    _, steps = trained(build, ba.adaptive(), quotas={"math": (0.0, 1.0)})
    assert np.mean([shares["math"] for shares in steps]) < 0.5


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"domain": "subject"}, InputError, r"domain='subject' without quotas=None: give both"),
        (
            {"domain": "topic", "quotas": {"math": (0, 1)}},
            InputError,
            r"no such column.*It has \['prompt', 'prompt_id'",
        ),
        (
            {"domain": "subject", "quotas": {"maths": (0, 1)}},
            InputError,
            "no prompt has this domain, did you mean math",
        ),
        (
            {"domain": "subject", "quotas": {"math": (0.9, 1.0)}, "cap": 2},
            BudgetError,
            r"quotas\['math'\]=\(15, 16\) cannot hold for 4 prompts: use \(0, 8\), cap=4, or have at least 8 prompts",
        ),
        ({"domain": "subject", "quotas": {"math": (0, 1)}, "candidates": 1}, UnsupportedError, "candidates=1: a batch"),
    ],
)
def test_what_cannot_be_kept_is_refused_when_the_callback_is_made(build, given, error, text):
    trainer = build(rows())
    with pytest.raises(error, match=text):
        AdaptiveGRPOCallback(trainer, **given)


def test_a_prompt_of_two_domains_is_named(build):
    data = Dataset.from_list([{"prompt": f"{n % 8}=", "subject": "math" if n < 12 else "code"} for n in range(24)])
    trainer = build(data)
    with pytest.raises(InputError, match=r"has two domains: 'subject' is 'math' in row 0 and 'code' in row 16"):
        AdaptiveGRPOCallback(trainer, domain="subject", quotas={"math": (0, 1)})


def test_a_domain_that_is_a_list_is_named(build):
    data = Dataset.from_list([{"prompt": f"{n}=", "subject": [1.5]} for n in range(24)])
    trainer = build(data)
    with pytest.raises(InputError, match=r"subject=\[1.5\] in row 0 cannot name a domain"):
        AdaptiveGRPOCallback(trainer, domain="subject", quotas={"math": (0, 1)})


def test_a_budget_that_varies_is_refused_with_what_serves_it(build):
    trainer = build(rows())
    paced = Paced(**vars(ba.adaptive()), plan=(8, 8, 32))
    with pytest.raises(UnsupportedError, match=r"is Paced: .* 16 rows at every step .*rollouts_per_step="):
        AdaptiveGRPOCallback(trainer, paced)

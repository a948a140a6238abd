"""Quotas by domain on TRL's real trainer: they hold at every step, or are refused before the training."""

from dataclasses import replace

import pytest
from conftest import Watched, logged, trained
from datasets import Dataset

import budgetalloc as ba
from budgetalloc import BudgetError, InputError, UnsupportedError
from budgetalloc.trl import AdaptiveGRPOCallback

pytestmark = pytest.mark.slow
NAMES = ["math", "code", "code", "chat", "code", None]


def rows(count=24):
    """Four rows of math and of chat, four of no domain, twelve of code."""
    return Dataset.from_list([{"prompt": f"{n:03d}=", "prompt_id": n, "subject": NAMES[n % 6]} for n in range(count)])


def shares_of(build, policy, **given):
    """The shares of the rollouts by domain at every step, from the generated prompts; and the trainer."""
    seen = Watched(trainer := build(rows(), max_steps=4))
    trained(trainer, policy, domain="subject", **given)
    assert [len(prompts) for prompts in seen.prompts] == [16] * 4
    domains = [[NAMES[int(text[:3]) % 6] for text in prompts] for prompts in seen.prompts]
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
    trainer, steps = shares_of(build, policy, quotas={"math": (0.5, 0.625), "code": (0.0, 0.25)}, **bounds)
    for shares in steps:
        assert 0.5 <= shares["math"] <= 0.625
        assert shares["code"] <= 0.25
    for name in ("math", "code"):
        assert logged(trainer, f"budgetalloc/share/{name}") == [shares[name] for shares in steps]


def of_subjects(subject):
    """Rows of 8 prompts whose domain is a function of the row's number."""
    return Dataset.from_list([{"prompt": f"{n % 8}=", "subject": subject(n)} for n in range(24)])


@pytest.mark.parametrize(
    ("data", "given", "error", "text"),
    [
        (rows(), {"quotas": {"maths": (0, 1)}}, InputError, "no prompt has this domain, did you mean math"),
        (
            rows(),
            {"quotas": {"math": (0.9, 1.0)}, "cap": 2},
            BudgetError,
            r"quotas\['math'\]=\(15, 16\) cannot hold for 4 prompts, which take 0 to 8",
        ),
        (rows(), {"quotas": {"math": (0, 1)}, "candidates": 1}, UnsupportedError, "candidates=1: a batch"),
        (
            of_subjects(lambda n: "math" if n < 12 else "code"),
            {"quotas": {"math": (0, 1)}},
            InputError,
            r"has two domains: 'subject' is 'math' in row 0 and 'code' in row 16",
        ),
        (
            of_subjects(lambda n: [1.5]),
            {"quotas": {"math": (0, 1)}},
            InputError,
            r"subject=\[1.5\] in row 0 cannot name a domain",
        ),
    ],
)
def test_quotas_that_cannot_hold_are_refused(build, data, given, error, text):
    with pytest.raises(error, match=text):
        AdaptiveGRPOCallback(build(data), domain="subject", **given)


def test_a_budget_that_varies_is_refused_with_what_supports_it(build):
    paced = replace(ba.adaptive(), plan=(8, 8, 32))
    with pytest.raises(UnsupportedError, match=r"has a plan: .* 16 rows at every step .*rollouts_per_step="):
        AdaptiveGRPOCallback(build(rows()), paced)

"""Domains on TRL's real trainer: their rollouts are counted, quotas hold at every step, learned shares are logged, and
others are refused."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import Watched, logged, low_digit, trained
from datasets import Dataset

import budgetalloc as ba
from budgetalloc import BudgetError, InputError, UnsupportedError
from budgetalloc.contrib.domains import Domains
from budgetalloc.contrib.mixture import Mixture
from budgetalloc.trl import AdaptiveGRPOCallback

pytestmark = pytest.mark.slow


def rows_of(subject):
    """24 prompts whose domain is a function of their number."""
    return Dataset.from_list([{"prompt": f"{n:03d}=", "prompt_id": n, "subject": subject(n)} for n in range(24)])


def shares_of(build, policy, subject, steps=4, reward=low_digit, **given):
    """The callback, and the shares of the rollouts by domain at every step, from the generated prompts."""
    seen = Watched(trainer := build(rows_of(subject), reward, max_steps=steps))
    callback = trained(trainer, policy, domain="subject", **given)
    assert [len(prompts) for prompts in seen.prompts] == [16] * steps
    domains = [[subject(int(text[:3])) for text in prompts] for prompts in seen.prompts]
    return callback, [{name: names.count(name) / 16 for name in map(subject, range(6))} for names in domains]


def some_without(n):
    """Four prompts of math and of chat, four of no domain, twelve of code."""
    return ["math", "code", "code", "chat", "code", None][n % 6]


@pytest.mark.parametrize(
    ("policy", "bounds"),
    [
        (ba.adaptive(), {}),
        (ba.adaptive(), {"min_group": 2, "cap": 4}),
        (ba.knapsack(), {"candidates": "all", "quantum": 2}),
        (ba.thompson(), {"candidates": "all", "min_group": 3, "cap": 8}),
        (ba.uniform(), {"candidates": "all"}),
    ],
)
def test_quotas_are_kept_at_every_step(build, policy, bounds):
    quotas = {"math": (0.5, 0.625), "code": (0.0, 0.25)}
    callback, steps = shares_of(build, policy, some_without, quotas=quotas, **bounds)
    for shares in steps:
        assert 0.5 <= shares["math"] <= 0.625
        assert shares["code"] <= 0.25
    for name in quotas:
        assert logged(callback.trainer, f"budgetalloc/share/{name}") == [shares[name] for shares in steps]


@pytest.mark.parametrize("mixture", ["learn", Mixture("adept", probe=0.1)])
def test_shares_are_learned_and_logged(build, mixture):
    """`often` succeeds half the time, the others always or never."""

    def subject(n):
        return ["even", "never", "often"][n % 3]

    def reward(completions, prompt_id, **_):
        by_domain = {"even": 1.0, "never": 0.0}
        return [by_domain.get(subject(n), low) for n, low in zip(prompt_id, low_digit(completions), strict=True)]

    callback, steps = shares_of(build, ba.adaptive(), subject, 8, reward, mixture=mixture)
    for name in steps[0]:
        assert logged(callback.trainer, f"budgetalloc/share/{name}") == [shares[name] for shares in steps]
    assert np.mean([shares["often"] for shares in steps[4:]]) > 0.4
    key, first = ("success", 1) if mixture == "learn" else ("score", 3)  # the bandit tries one domain after another
    assert len(logged(callback.trainer, f"budgetalloc/mixture/{key}/often")) == 9 - first
    last = callback.session.part(Domains).quotas.mixture.shares()
    assert last["often"] > 0.4 if mixture == "learn" else max(last.values()) == pytest.approx(0.8)


@pytest.mark.parametrize("policy", [ba.uniform(), ba.methods.pods(generate=2)], ids=["uniform", "pods"])
def test_what_each_domain_gets_is_counted(build, ledger, policy):
    """Uniform groups of the loader's batch, and a policy that discards half of what it generates."""
    seen = Watched(trainer := build(rows_of(some_without), max_steps=2))
    trained(trainer, policy, domain="subject", ledger=ledger)
    frame, domains = ba.Ledger.read(ledger).frame, ba.Ledger.read(ledger).domains
    prompts = [some_without(int(text[:3])) for each in seen.prompts for text in each]
    kept = sum(len(batch["completion_ids"]) for batch in seen.batches)
    assert sum(each["trained"] for each in domains.values()) == kept == 32
    rows = frame.groupby([str(some_without(n)) for n in frame.prompt])
    for name in map(str, dict.fromkeys(prompts)):
        of_domain, found = rows.get_group(name), domains[name]
        count = sum(str(x) == name for x in prompts)
        assert found["requested"] == found["came"] == len(of_domain) == count
        assert found["trained"] <= found["came"]
        assert found["success"] == pytest.approx(of_domain.success.mean())
        assert found["tokens"] == pytest.approx(of_domain.length.mean())
        for key in ("requested", "came", "trained"):
            assert sum(logged(trainer, f"budgetalloc/domain/{key}/{name}")) == found[key]
    if policy.needs.generate > 1:
        assert any(each["trained"] < each["came"] for each in domains.values())


def of_subjects(subject):
    """Rows of 8 prompts whose domain is a function of the row's number."""
    return Dataset.from_list([{"prompt": f"{n % 8}=", "subject": subject(n)} for n in range(24)])


@pytest.mark.parametrize(
    ("data", "given", "error", "text"),
    [
        (rows_of(some_without), {"quotas": {"maths": (0, 1)}}, InputError, "no prompt has this domain, .* math"),
        (rows_of(some_without), {"quotas": {"math": (0.9, 1)}, "cap": 2}, BudgetError, "4 prompts, which take 0 to 8"),
        (rows_of(some_without), {"quotas": {"math": (0, 1)}, "candidates": 1}, UnsupportedError, "candidates=1"),
        (rows_of(some_without), {"mixture": "learn", "candidates": 1}, UnsupportedError, "mixture with candidates=1"),
        (rows_of(some_without), {"mixture": "learn", "domain": "topic"}, InputError, "domain='topic'"),
        (
            of_subjects(lambda n: "math" if n < 12 else "code"),
            {"quotas": {"math": (0, 1)}},
            InputError,
            "'subject' is 'math' in row 0 and 'code' in row 16",
        ),
        (of_subjects(lambda n: [1.5]), {"quotas": {"math": (0, 1)}}, InputError, r"subject=\[1.5\] in row 0"),
    ],
)
def test_shares_that_cannot_hold_are_refused(build, data, given, error, text):
    with pytest.raises(error, match=text):
        AdaptiveGRPOCallback(build(data), **{"domain": "subject"} | given)


def test_a_budget_that_varies_is_refused_with_what_supports_it(build):
    paced = replace(ba.adaptive(), plan=(8, 8, 32))
    with pytest.raises(UnsupportedError, match=r"has a plan: .* 16 rows at every step .*rollouts_per_step="):
        AdaptiveGRPOCallback(build(), paced)

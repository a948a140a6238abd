"""Learned shares of domains on TRL's real trainer: kept at every step, logged, the same after a resume, or refused."""

import numpy as np
import pytest
from conftest import SAVES, Watched, logged, trained
from datasets import Dataset

import budgetalloc as ba
from budgetalloc import InputError, UnsupportedError
from budgetalloc.contrib.domains import Domains
from budgetalloc.contrib.mixture import Mixture
from budgetalloc.trl import AdaptiveGRPOCallback

pytestmark = pytest.mark.slow
NAMES = ["even", "never", "often"]


def rows(count=24):
    return Dataset.from_list([{"prompt": f"{n:03d}=", "prompt_id": n, "subject": NAMES[n % 3]} for n in range(count)])


def reward(prompts, completions, **_):
    """`often`: a low first digit, about half; `never`: 0; `even`: 1."""
    domains = [NAMES[int(text[:3]) % 3] for text in prompts]
    low = [float(text[:1] in "01234") for text in completions]
    return [{"even": 1.0, "never": 0.0, "often": x}[d] for d, x in zip(domains, low, strict=True)]


def run(build, steps, resume=None, **given):
    """The trainer, the callback, the shares by domain at every step, and the generated prompts."""
    config = {"max_steps": steps, "lr_scheduler_type": "constant", **SAVES}
    seen = Watched(trainer := build(rows(), reward, **config))
    callback = trained(trainer, ba.adaptive(), domain="subject", resume=resume, **given)
    domains = [[NAMES[int(text[:3]) % 3] for text in prompts] for prompts in seen.prompts]
    return trainer, callback, [{name: d.count(name) / 16 for name in NAMES} for d in domains], seen.prompts


@pytest.mark.parametrize("mixture", ["learn", Mixture("adept", probe=0.1)])
def test_shares_are_learned_and_logged(build, mixture):
    trainer, callback, steps, _ = run(build, 8, mixture=mixture)
    assert all(sum(shares.values()) == 1 for shares in steps)
    for name in NAMES:
        assert logged(trainer, f"budgetalloc/share/{name}") == [shares[name] for shares in steps]
    assert len({tuple(shares.values()) for shares in steps}) > 1
    assert np.mean([shares["often"] for shares in steps[4:]]) > 0.4
    key, first = ("success", 1) if mixture == "learn" else ("score", 3)  # the bandit tries one domain after another
    assert len(logged(trainer, f"budgetalloc/mixture/{key}/often")) == 9 - first
    last = callback.session.part(Domains).quotas.mixture.shares()
    assert last["often"] > 0.4 if mixture == "learn" else max(last.values()) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"mixture": "learn"}, InputError, "mixture='learn' without domain="),
        ({"mixture": "lern", "domain": "subject"}, InputError, "mixture='lern': use one of 'learn', 'adept'"),
        ({"mixture": "learn", "domain": "topic"}, InputError, "domain='topic': the train dataset has no such column"),
        ({"mixture": "learn", "domain": "prompt"}, None, ""),
        ({"mixture": "learn", "domain": "subject", "candidates": 1}, UnsupportedError, "mixture with candidates=1"),
    ],
)
def test_a_mixture_that_cannot_be_learned_is_refused(build, given, error, text):
    if error is None:  # a domain for each prompt is unusual, and harmless
        AdaptiveGRPOCallback(build(rows()), **given)
        return
    with pytest.raises(error, match=text):
        AdaptiveGRPOCallback(build(rows()), **given)

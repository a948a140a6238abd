"""A session that learns the shares of its domains: whom it serves, what it logs, and that it goes on after a resume."""

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc import UnsupportedError
from budgetalloc.contrib.domains import Domains
from budgetalloc.training.session import Session

SIZES = {"solved": 30, "noise": 30, "learns": 30, "hopeless": 30}
DOMAIN = {f"{domain}{k}": domain for domain, size in SIZES.items() for k in range(size)}


class World:
    """Solved at 0.98, a coin, one that improves with its rollouts, and one without success."""

    def __init__(self, seed=0):
        self.rng, self.rate = np.random.default_rng(seed), dict(zip(SIZES, (0.98, 0.5, 0.1, 0.0), strict=True))

    def __call__(self, ids_R):
        domains = [DOMAIN.get(name, "noise") for name in ids_R]
        success_R = (self.rng.random(len(ids_R)) < [self.rate[d] for d in domains]).astype(float)
        self.rate["learns"] = min(self.rate["learns"] + 1e-4 * domains.count("learns"), 0.95)
        return success_R


def mixture_of(session):
    return next(part for part in session.parts if isinstance(part, Domains)).quotas.mixture


def session_of(mixture="learn", policy="adaptive", **given):
    return Session(policy, ["reward"], domain=DOMAIN, mixture=mixture, quiet=False, **given)


def steps(session, world, count, ids=(), rollouts=128):
    """The prompts and the metrics of these steps."""
    run = []
    for _ in range(count):
        session.begin(list(ids), rollouts, 8)
        ids_R = session.request()
        session.observe(ids_R, world(ids_R), np.ones(len(ids_R)))
        run.append((sorted(ids_R), session.end().metrics))
    return run


def test_rounds_are_refused_without_a_word_of_quotas():
    session = session_of(policy=ba.adaptive(rounds=3))
    with pytest.raises(UnsupportedError, match=r"mixture: growing.* decides in rounds") as caught:
        session.begin([], 128, 8)
    assert "quotas" not in str(caught.value)


def test_what_learns_gets_more_than_it_would_without_a_mixture():
    own = steps(session_of(), World(), 40)
    plain = Session("adaptive", ["reward"], pool=list(DOMAIN))
    without = [[DOMAIN[x] for x in ids_R] for ids_R, _ in steps(plain, World(), 40)]

    def gain(domain):
        return np.mean([metrics[f"share/{domain}"] for _, metrics in own[10:]]) - np.mean(
            [domains.count(domain) / 128 for domains in without[10:]]
        )

    last = own[-1][1]
    assert gain("learns") > 0.05
    assert gain("noise") < -0.05
    assert last["share/hopeless"] < 0.1
    assert last["mixture/efficiency/noise"] < 0.8
    assert last["mixture/success/solved"] > 0.8
    assert min(metrics[f"share/{d}"] for _, metrics in own for d in SIZES) >= 2 / 128  # the probe, of 2.56 rollouts


def test_a_solved_domain_that_falls_gets_its_rollouts_back():
    session, world = session_of(), World()
    before = steps(session, world, 40)[-1][1]["share/solved"]
    world.rate["solved"] = 0.4
    after = [metrics["share/solved"] for _, metrics in steps(session, world, 8)]
    assert max(after) > before + 0.2


@pytest.mark.parametrize("mixture", ["learn", "adept"])
@pytest.mark.parametrize("policy", ["adaptive", "knapsack", "uniform"])
def test_a_saved_run_goes_on_as_if_it_had_never_stopped(tmp_path, mixture, policy):
    given = {"mixture": mixture, "policy": policy, "candidates": "all"}
    session, world = session_of(**given), World()
    steps(session, world, 7)
    session.save(tmp_path / "state.npz")
    other = session_of(**given)
    other.load(tmp_path / "state.npz")
    twin = World()
    twin.rng.bit_generator.state, twin.rate = world.rng.bit_generator.state, dict(world.rate)
    assert steps(session, world, 6) == steps(other, twin, 6)


def test_the_shares_do_not_depend_on_the_order_of_rows_or_prompts():
    """As on other ranks, whose gathered rows may come in another order."""
    one, other, world = session_of(), session_of(), World()
    for _ in range(6):
        for session in (one, other):
            session.begin([], 128, 8)
        ids_R = one.request()
        assert sorted(other.request()) == sorted(ids_R)
        success_R, order_R = world(ids_R), np.random.default_rng(1).permutation(128)
        one.observe(ids_R, success_R, np.ones(128))
        other.observe([ids_R[at] for at in order_R], success_R[order_R], np.ones(128))
        one.end(), other.end()
    assert mixture_of(one).shares() == pytest.approx(mixture_of(other).shares(), abs=1e-12)


def test_a_step_without_rewards_teaches_nothing():
    session = session_of()
    session.begin([], 128, 8)
    ids_R = session.request()
    session.observe(ids_R, np.full(128, np.nan), np.ones(128))
    session.end()
    assert len(set(mixture_of(session).shares().values())) == 1
    steps(session, World(), 2)


@pytest.mark.parametrize(
    ("policy", "given", "text"),
    [
        ("adaptive", {"candidates": 2}, "mixture with candidates=2: .* Use candidates='all'"),
        (ba.methods.dapo(), {"candidates": "all"}, "mixture: .* generates more rollouts"),
    ],
)
def test_policies_that_may_break_the_shares_are_refused_at_the_first_step(policy, given, text):
    with pytest.raises(UnsupportedError, match=text):
        steps(session_of(policy=policy, **given), World(), 1, list(DOMAIN)[:8])


def test_quotas_bound_the_learned_shares():
    for _, metrics in steps(session_of(quotas={"noise": (0.25, 0.5), "learns": (0.0, 0.25)}), World(), 20):
        assert 0.25 <= metrics["share/noise"] <= 0.5
        assert metrics["share/learns"] <= 0.25

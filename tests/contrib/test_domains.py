"""A session that counts the rollouts of its domains, or learns their shares: what it logs and writes, whom it serves,
and that it goes on after a resume."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc import UnsupportedError, policies
from budgetalloc.beliefs.state import load_state
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
    policy = replace(ba.methods.ar3po(), needs=ba.Needs("all"))
    session = session_of(policy=policy)
    with pytest.raises(UnsupportedError, match=r"mixture: ar3po.* decides in rounds") as caught:
        session.begin([], 128, 8)
    assert "quotas" not in str(caught.value)


def test_groups_that_would_grow_are_planned_at_once_which_is_said(caplog):
    session = session_of(policy=ba.adaptive(rounds=3))
    assert [metrics["share/hopeless"] > 0 for _, metrics in steps(session, World(), 2)]
    assert caplog.text.count("decides once a step here, without rounds: quotas are kept at once.") == 1


def test_what_learns_gets_more_than_it_would_without_a_mixture():
    own = steps(session_of(policy=policies.sampled(groups=2)), World(), 40)
    plain = Session(policies.sampled(groups=2), ["reward"], pool=list(DOMAIN))
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


# --- statistics

SOURCE = {"a": "math", "b": "math", "c": "code", "d": None}


def twice_as_many(keep):
    """A policy that generates 4, 2 and 2 rollouts of the first three prompts, and trains on what `keep` returns."""
    needs = ba.Needs(candidates="all", generate=2, baseline="group")
    count = {"a": 4, "b": 2, "c": 2}

    def decide(view):
        return np.array([count.get(name, 0) for name in view.ids_P])

    return ba.Policy("twice", decide, ba.BetaEstimator(), needs=needs, keep=lambda *_: np.array(keep))


def source_session(policy, **given):
    return Session(policy, ["reward"], pool=list(SOURCE), quiet=True, **{"metrics": "all", "domain": SOURCE} | given)


def by_domain(metrics):
    return {name: value for name, value in metrics.items() if name.startswith("domain/")}


def test_each_domain_has_what_it_requested_got_and_trained_on(tmp_path):
    """A rollout of a and both of c are lost, one of b has no reward, and the policy trains on three of the others."""
    session = source_session(twice_as_many([0, 2, 3, 3]), ledger=tmp_path / "l")
    session.begin([], 4, 2)
    assert Counter(session.request()) == {"a": 4, "b": 2, "c": 2}
    session.observe(list("aaabb"), [1, 0, 1, 0, np.nan], [10, 20, 30, 5, 5])
    metrics = session.end().metrics
    assert by_domain(metrics) == {
        "domain/requested/math": 6,
        "domain/came/math": 5,
        "domain/tokens/math": 14,
        "domain/scored/math": 4,
        "domain/success/math": 0.5,
        "domain/trained/math": 3,
        "domain/requested/code": 2,
        **{f"domain/{key}/{name}": 0 for key in ("came", "scored", "trained") for name in ("code", None)},
        "domain/requested/None": 0,
    }
    math = {"requested": 6, "came": 5, "trained": 3, "success": 0.5, "tokens": 14}
    read = ba.Ledger.read(tmp_path / "l").domains
    assert read["math"] == math
    code = {"requested": 2, "came": 0, "trained": 0, "success": pytest.approx(np.nan, nan_ok=True)}
    assert read["code"] == {**code, "tokens": pytest.approx(np.nan, nan_ok=True)}
    session.begin([], 4, 2)  # all rollouts of the next step fail
    session.request()
    session.observe([], [], [])
    assert session.end().metrics == {"domain/requested/math": 6, "domain/requested/code": 2, "domain/requested/None": 0}
    assert ba.Ledger.read(tmp_path / "l").domains["math"] == math | {"requested": 12}
    assert "<h2>Domains</h2>" in ba.report.as_html(ba.report.report(tmp_path / "l", policies=()))
    shown = ba.report.as_text(ba.report.report(tmp_path / "l", policies=())).splitlines()
    at = shown.index("DOMAINS")
    assert [line.split() for line in shown[at + 2 : at + 5]] == [
        ["domain", "requested", "came", "trained", "success", "tokens"],
        ["math", "12", "5", "3", "0.5", "14"],
        ["code", "4", "0", "0", "-", "-"],
    ]


def test_a_run_in_which_every_rollout_fails_has_a_ledger(tmp_path):
    session = source_session("adaptive", ledger=tmp_path / "l")
    session.begin([], 8, 2)
    session.request()
    session.observe([], [], [])
    session.end()
    with pytest.raises(ba.InputError, match="no row that could be read: there is nothing to report"):
        ba.report.report(tmp_path / "l")


def test_costs_are_counted_where_there_are_some(tmp_path):
    session = source_session("adaptive", cost={"turns": 2.0}, ledger=tmp_path / "l")
    session.begin([], 8, 2)
    ids_R = session.request()
    turns_R = np.arange(1.0, 9.0)
    session.observe(ids_R, np.zeros(8), np.ones(8), costs_R=turns_R)
    metrics, domains = session.end().metrics, ba.Ledger.read(tmp_path / "l").domains
    for name in map(str, dict.fromkeys(SOURCE[x] for x in ids_R)):
        mean = 2 * np.mean([turn for x, turn in zip(ids_R, turns_R, strict=True) if str(SOURCE[x]) == name])
        assert metrics[f"domain/cost/{name}"] == pytest.approx(mean)
        assert domains[name]["cost"] == pytest.approx(mean)


def test_the_main_metrics_have_no_statistics():
    session = source_session("adaptive", metrics="main")
    session.begin([], 8, 2)
    ids_R = session.request()
    session.observe(ids_R, np.zeros(8), np.ones(8))
    assert by_domain(session.end().metrics) == {}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(["came", "lost", "unscored"]), min_size=16, max_size=16), st.integers(0, 2**16))
def test_the_sums_over_domains_are_those_of_the_step(fates, seed):
    session, rng = source_session(ba.adaptive(seed=seed)), np.random.default_rng(seed)
    session.begin([], 16, 2)
    requested_R = session.request()
    rows = [at for at, fate in enumerate(fates) if fate != "lost"]
    rewards_R = [rng.random() if fates[at] == "came" else np.nan for at in rows]
    lengths_R = rng.integers(1, 99, len(rows))
    session.observe([requested_R[at] for at in rows], rewards_R, lengths_R)
    metrics = session.end().metrics

    def total(key, of=None):
        names = dict.fromkeys(map(str, SOURCE.values()))
        weights = [1 if of is None else metrics.get(f"domain/{of}/{name}", 0) for name in names]
        return sum(x * metrics.get(f"domain/{key}/{name}", 0) for x, name in zip(weights, names, strict=True))

    scored = fates.count("came")
    assert (total("requested"), total("came"), total("scored")) == (16, len(rows), scored)
    assert total("trained") == len(rows)
    assert total("tokens", "came") == pytest.approx(lengths_R.sum())
    assert total("success", "scored") == pytest.approx(scored * metrics.get("success", 0))
    assert total("requested") - total("came") == metrics.get("lost", 16)


@pytest.mark.parametrize(
    ("policy", "given"),
    [
        ("adaptive", {}),
        ("adaptive", {"candidates": 1}),
        (lambda: ba.adaptive(rounds=3), {}),
        ("uniform", {}),
        (lambda: ba.methods.pods(generate=2), {}),
    ],
    ids=["adaptive", "batch", "rounds", "uniform", "pods"],
)
def test_statistics_alone_change_no_decision(policy, given, tmp_path):
    """Requests, advantages, rows, other metrics and what is learned are equal to the bit."""

    def run(name, **more):
        session = Session(policy, ["reward"], pool=list(DOMAIN), quiet=True, metrics="all", **given, **more)
        world, seen = World(), []
        for step in range(5):
            session.begin(list(DOMAIN)[step::15], 32, 4)
            while ids_R := session.request():
                session.observe(ids_R, world(ids_R), np.full(len(ids_R), 7))
                seen.append(ids_R)
            ended = session.end()
            assert bool(by_domain(ended.metrics)) == bool(more)
            rest = {key: x for key, x in ended.metrics.items() if not key.startswith("domain/")}
            seen += [ended.advantages_R.tolist(), ended.kept_R.tolist(), rest]
        session.save(tmp_path / name)
        state = {key: np.asarray(x).tolist() for key, x in load_state(tmp_path / name)[0].items()}
        return seen, state

    assert repr(run("with", domain=DOMAIN)) == repr(run("without"))


def test_a_resume_counts_each_step_once(tmp_path):
    """The second run repeats the step after the checkpoint, which the ledger then holds twice."""
    given = {"ledger": tmp_path / "l", "policy": "adaptive", "metrics": "all", "domain": DOMAIN, "pool": list(DOMAIN)}

    def made():
        return Session(given["policy"], ["reward"], **{key: x for key, x in given.items() if key != "policy"})

    session, world = made(), World()
    steps(session, world, 2)
    session.save(tmp_path / "state.npz")
    steps(session, world, 1)
    again = made()
    again.load(tmp_path / "state.npz")
    steps(again, world, 2)
    domains = ba.Ledger.read(tmp_path / "l").domains
    for key in ("requested", "came", "trained"):
        assert sum(domain[key] for domain in domains.values()) == 4 * 128

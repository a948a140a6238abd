"""The replay benchmark: its maths on a made-up log with known answers."""

import math

import numpy as np
import pytest
import replay  # of benchmarks/learning

import budgetalloc as ba

NEAR = {"back": 2, "ahead": 2}


def made_up(successes, visits=6):
    """Prompts that pass so many of 8 at every visit; the first has a visit more."""
    groups = [(p, v, s, 8) for p, s in enumerate(successes) for v in range(visits + (p == 0))]
    return replay.Log(*np.array(groups).T)


def test_the_ledger_holds_the_log():
    log = made_up([0, 3, 8], visits=2)
    rows = replay.ledger(log).frame
    assert len(rows) == log.rollouts_G.sum() == 56
    got = dict.fromkeys(zip(log.prompt_G.tolist(), log.visit_G.tolist(), strict=True), 0.0)
    for name, step, reward in zip(rows.prompt.tolist(), rows.step.tolist(), rows.reward.tolist(), strict=True):
        got[name, step] += reward
    assert list(got.values()) == log.successes_G.tolist()


def test_offers_are_whole_sweeps_with_other_prompts():
    log = made_up([4] * 20)
    plain, more = replay.offers(log, 1, 0, step=8), replay.offers(log, 2, 0, step=8)
    assert [x.own for x in plain] == [8, 8, 4] * 6
    assert [x.sweep for x in plain] == list(np.repeat(range(6), 3))  # not the visit that only one prompt has
    for one, two in zip(plain, more, strict=True):
        assert one.ids_P == two.ids_P[: two.own]
        assert len(set(two.ids_P)) == len(two.ids_P) == 2 * two.own
    assert sorted(name for x in plain[:3] for name in x.ids_P) == list(range(20))
    assert more[0].ids_P[8:] != more[3].ids_P[8:]


def test_uniform_draws_the_log_and_the_oracle_is_the_best():
    log = made_up([4] * 4 + [1] * 2 + [0] * 2)
    steps, rows = replay.offers(log, 1, 0), replay.ledger(log)
    base = replay.play(ba.uniform(), rows, steps, 2, True, NEAR)
    expected = 4 * (1 - 2 * 0.5**8) + 2 * (1 - 0.125**8 - 0.875**8)
    assert base.value_S == pytest.approx(np.full(6, expected))
    assert base.mixed_S.tolist() == [6] * 6
    assert base.modelled == 0
    best = replay.play(None, rows, steps, 2, False, NEAR)
    # Two for each hopeless prompt; the other 60 where they gain most, by the exact solver.
    rates_P = np.array([0.5] * 4 + [0.125] * 2 + [0.0] * 2)
    budget = ba.Budget(64, cap=64)
    exact = ba.certify(ba.mixed_group(ba.Point(rates_P), budget.grid()), None, budget).value
    assert best.value_S == pytest.approx(np.full(6, exact), abs=1e-6)
    assert best.modelled > 0
    for policy in (ba.knapsack(), ba.thompson(), ba.adaptive()):
        played = replay.play(policy, rows, steps, 2, False, NEAR)
        assert (played.value_S <= best.value_S + 1e-9).all()
    learned = replay.play(ba.knapsack(), rows, steps, 2, False, NEAR)
    assert learned.value_S[0] == pytest.approx(expected)  # nothing is known: 8 each
    assert learned.value_S[-1] > learned.value_S[0]


def test_the_policy_sees_only_what_it_asked_for():
    seen = []

    def decide(view):
        seen.append((view.belief_P.alpha_P + view.belief_P.beta_P - 1).round(6).tolist())
        return np.array([view.budget.rollouts] + [0] * (len(view.belief_P) - 1))

    log = made_up([4] * 3, visits=4)
    policy = ba.Policy("first", decide, ba.BetaEstimator())
    played = replay.play(policy, replay.ledger(log), replay.offers(log, 1, 0), 0, False, NEAR)
    assert [sum(evidence) for evidence in seen] == [0, 24, 48, 72]
    assert played.modelled == pytest.approx(16 / 24)  # 24 for one prompt where 8 were logged
    assert played.mixed_S.tolist() == [1] * 4
    assert played.value_S == pytest.approx(np.full(4, 1 - 2 * 0.5**24))


def test_share_and_its_interval():
    sweep_S = np.repeat(np.arange(40), 3)
    base, best = np.full(120, 60.0), np.full(120, 70.0)
    assert replay.share(base + 5, base, best, sweep_S) == (0.5, 0.5, 0.5)
    assert replay.share(base, base, best, sweep_S)[0] == 0
    assert replay.share(best, base, best, sweep_S)[0] == 1
    # Blocks of 4 alike sweeps are 10 observations, not 120: the interval is that of their mean.
    level = np.random.default_rng(0).normal(size=10)
    part, low, high = replay.share(base + 10 * np.repeat(level, 12), base, best, sweep_S)
    assert part == pytest.approx(level.mean())
    assert high - low == pytest.approx(2 * 2.262 * level.std(ddof=1) / math.sqrt(10), rel=1e-3)


def test_the_model_is_tried_on_visits_that_it_has_not_seen():
    """Four neighbours with 4 of 8 each: Beta(16.5, 16.5); the visit itself does not count."""
    log = made_up([4] * 3, visits=5)
    expected = ba.Beta([16.5], [16.5])
    mixed = ba.mixed_group(expected, [8])[0, 0]
    nats, predicted, real = replay.check_model(log)
    assert predicted == pytest.approx(mixed)
    assert real == 1
    log.successes_G[log.visit_G == 2] = 0
    nats, predicted, real = replay.check_model(log)
    assert nats == pytest.approx(math.log(expected.all_fail([8])[0, 0]))
    assert predicted == pytest.approx(mixed)
    assert real == 0


def test_the_report_has_a_line_for_each_policy(capsys):
    log = made_up([0, 2, 4, 6, 8] * 4)
    for setting in replay.SETTINGS:
        replay.report(log, setting, list(replay.RIVALS), 0, NEAR, step=10)
    lines = [x.split(" | ") for x in capsys.readouterr().out.splitlines() if x.startswith("| ")]
    assert len(lines) == 2 * (len(replay.RIVALS) + 2) - 1
    uniform = next(x for x in lines if x[0] == "| uniform")
    assert float(uniform[3]) == 6.0  # 12 of the 20 prompts, of which 10 are a step
    assert lines[-1][0] == "| oracle"


def test_without_the_log_it_says_so(tmp_path, capsys):
    replay.main(["--data", str(tmp_path)])
    assert "Skipped" in capsys.readouterr().out


def test_the_model_on_the_real_log():
    """The figures of the prior in `budgetalloc/offline/replay.py`; priors around it predict no better."""
    if not (replay.DATA / replay.LOG).exists():
        pytest.skip(f"no {replay.DATA / replay.LOG}")
    log = replay.read(replay.DATA / replay.LOG)
    nats, predicted, real = replay.check_model(log)
    assert (nats, predicted, real) == pytest.approx((-1.100, 0.53, 0.51), abs=0.005)
    assert nats > max(replay.check_model(log, prior)[0] for prior in (0.2, 1.0))

"""A session against the policy's own steps, group_advantages and a run that never stopped; calls that are refused."""

import copy
import os
import threading
from collections import Counter

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc import InputError, StateError, UnsupportedError, policies
from budgetalloc.contrib.costs import Costs
from budgetalloc.contrib.shadow import Shadow
from budgetalloc.logs.prompt_texts import read_texts
from budgetalloc.policies import sampled
from budgetalloc.policies.advantages import batch_advantages
from budgetalloc.training.belief_checkpoint import load_beliefs, save_beliefs
from budgetalloc.training.options import Options
from budgetalloc.training.parts import Host, Part
from budgetalloc.training.prompts import Prompts
from budgetalloc.training.session import Session
from budgetalloc.training.uniform_fallback import UniformFallback

NAMES = [f"q{k}" for k in range(12)]
RESOLVED = Options.resolve(ba.adaptive().needs, "none", {})
SECONDS = Options.resolve(ba.adaptive().needs, "none", {"cost": "seconds"})
RATES = dict(zip(NAMES, np.linspace(0, 1, 12), strict=True))


def part_of(session, kind):
    return next(part for part in session.parts if isinstance(part, kind))


def session_of(policy, rewards=("reward",), **given):
    return Session(policy, list(rewards), **{"pool": NAMES} | given)


def opened(policy, ids, rollouts, group, **given):
    """A session with a step that has begun, and the prompts that it requested."""
    session = session_of(policy, **given)
    session.begin(ids, rollouts, group)
    return session, session.request()


def trained(session, steps, rewards=1):
    """The prompts and advantages of these steps; the successes follow from the step's number."""
    run = []
    for step in steps:
        session.begin(NAMES[:4], 16, 4)
        ids_R = session.request()
        success_R = np.random.default_rng(step).random(len(ids_R)) < [RATES[name] for name in ids_R]
        rewards_RF = np.stack([5.0 * success_R - 2, success_R][:rewards], axis=1)
        session.observe(ids_R, rewards_RF, np.ones(len(ids_R)))
        assert session.request() == []
        run.append((Counter(ids_R), session.end().advantages_R))
    return run


def same(one, other):
    return all(a[0] == b[0] and np.array_equal(a[1], b[1]) for a, b in zip(one, other, strict=True))


def test_uniform_has_the_advantages_of_groups():
    session, asked_R = opened(ba.uniform(), NAMES[:2], 8, 4)
    assert session.options.of_groups
    assert Counter(asked_R) == {"q0": 4, "q1": 4}
    ids_R, rewards_R = ["q0"] * 4 + ["q1"] * 4, [1.0, 0, 0, 0, 1, 1, 0.5, 0]
    session.observe(ids_R, rewards_R, [1] * 8)
    ended = session.end()
    assert ended.kept_R.tolist() == list(range(8))
    assert ended.advantages_R == pytest.approx(ba.group_advantages(rewards_R, ids_R, scale="none"), abs=1e-12)


def test_a_policy_chooses_from_the_pool_and_compares_with_its_beliefs():
    session = session_of(ba.adaptive(seed=0))
    assert not session.options.of_groups
    run = trained(session, range(8))
    assert all(sum(counts.values()) == 16 for counts, _ in run)
    assert set().union(*(counts for counts, _ in run)) == set(NAMES)
    singles = [
        advantage
        for counts, advantages_R in run
        for name, advantage in zip(counts.elements(), advantages_R, strict=True)
        if counts[name] == 1
    ]
    assert np.any(np.array(singles) != 0)


def test_a_run_that_loads_decides_as_one_that_never_stopped(tmp_path):
    whole = trained(session_of(ba.adaptive(seed=0)), range(6))
    stopped, resumed = session_of(ba.adaptive(seed=0)), session_of(ba.adaptive(seed=0))
    first = trained(stopped, range(3))
    stopped.save(tmp_path / "state.npz")
    resumed.load(tmp_path / "state.npz")
    assert same(first + trained(resumed, range(3, 6)), whole)


GRADED = np.tile([0.0, 2.0, 4.0, 10.0], 4)


def on_graded(steps, weight=1.0, **given):
    """A session that has trained this many steps on `GRADED` rewards."""
    session = session_of(ba.thompson(discount=1.0), weights=[weight], quiet=True, **given)
    for _ in range(steps):
        session.begin(NAMES, 16, 4)
        session.observe(session.request(), GRADED, np.ones(16))
        session.end()
    return session


def mean_success(session):
    successes, failures = session.policy.state_dict()["evidence"][:, :2].sum(axis=0)
    return successes / (successes + failures)


@pytest.mark.parametrize("later", [0.5, 0.25])
@pytest.mark.parametrize("given", [None, (0.0, 50.0)])
def test_beliefs_go_on_under_another_weight_of_the_only_function(tmp_path, given, later):
    """The range is in units of the total reward, and the learned one in those of the only reward function."""
    scaled = None if given is None else (0.0, given[1] * later / 0.5)
    saved, resumed = on_graded(2, 0.5, reward_range=given), on_graded(0, later, reward_range=scaled)
    assert mean_success(saved) == pytest.approx(0.5 * GRADED.mean() / (given[1] if given else 5.0))
    saved.save(tmp_path / "state.npz")
    resumed.load(tmp_path / "state.npz")
    assert mean_success(resumed) == mean_success(saved)
    resumed.begin(NAMES, 16, 4)
    resumed.observe(resumed.request(), GRADED, np.ones(16))
    assert resumed.end().batch.reward_range == pytest.approx(scaled or (0.0, later * 10))


def state_of(session):
    return str(session.state())


def assert_refused(saved, session, folder, message):
    """Neither `Session.load` nor a trainer's checkpoint loads the state, and both leave the session as it was."""
    before = state_of(session)
    saved.save(folder / "state.npz")
    with pytest.raises(StateError, match=message):
        session.load(folder / "state.npz")
    prompts = Prompts([{"prompt": "2 + 2 ="}])
    save_beliefs(folder, saved, prompts, 2)
    with pytest.raises(StateError, match=message):
        load_beliefs(folder, session, prompts, False, 2)
    assert state_of(session) == before


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({}, {"reward_range": (6.0, 8.0)}, r"reward_range=\(6.0, 8.0\).*rewards in \(0.0, 10.0\)"),
        ({}, {"weight": -1.0}, "about reward, this trainer's about the total reward"),
        ({"weight": -1.0}, {}, "about the total reward, this trainer's about reward"),
        ({"success": 0.5}, {}, "at least 0.5, this trainer's about reward"),
    ],
)
def test_a_state_of_another_success_is_refused_and_nothing_changes(tmp_path, first, second, message):
    assert_refused(on_graded(2, **first), on_graded(1, **second), tmp_path, message)


def damage_fallback(session):
    part_of(session, UniformFallback)._sums = (np.nan,) * 5


def damage_costs(session):
    part_of(session, Costs).price.steps = np.zeros((1, 5))


@pytest.mark.parametrize(
    ("damage", "message"), [(damage_fallback, "UniformFallback"), (damage_costs, "prices in seconds")]
)
def test_a_state_with_a_damaged_part_changes_nothing(tmp_path, damage, message):
    saved, session = (session_of(ba.adaptive(seed=0), resolved=SECONDS) for _ in range(2))
    for each in (saved, session):
        each.attach(Host(measures_seconds=True))
    trained(saved, range(2))
    damage(saved)
    assert_refused(saved, session, tmp_path, message)


def test_a_damaged_file_is_refused_and_nothing_changes(tmp_path):
    (tmp_path / "state.npz").write_bytes(b"no state")
    session = session_of(ba.adaptive(seed=0))
    with pytest.raises(StateError, match=r"state\.npz"):
        session.load(tmp_path / "state.npz")
    assert same(trained(session, range(3)), trained(session_of(ba.adaptive(seed=0)), range(3)))


def test_a_rollout_is_compared_with_earlier_rounds_and_not_with_later_ones():
    policy = policies.sequential(policies.sampled(groups=2, seed=0), share=0.5)
    session = session_of(policy, baseline="posterior", scale="none")
    session.begin(NAMES, 32, 8)
    rows = []
    for number in range(2):
        asked_K = sorted(session.request())
        for part_K in (asked_K[::2], asked_K[1::2]):  # a request may be observed in parts
            rewards_K = [float(RATES[name] > 0.7 and number == 0) for name in part_K]
            session.observe(part_K, rewards_K, [1] * len(part_K))
            rows += [(name, reward, number) for name, reward in zip(part_K, rewards_K, strict=True)]
    assert session.request() == []
    ids_R, rewards_R, round_R = (list(column) for column in zip(*rows, strict=True))
    batch = session.record()
    assert batch.round_R.tolist() == round_R
    expected_R = ba.group_advantages(rewards_R, ids_R, "posterior", "none", belief_R=batch.baseline_R, round_R=round_R)
    baseline_R = batch_advantages(batch, "posterior", "none").baseline_R
    assert np.array(rewards_R) - baseline_R == pytest.approx(expected_R)


def test_a_policy_that_generates_more_trains_on_what_it_keeps():
    session, ids_R = opened(ba.methods.pods(), NAMES[:2], 8, 4)
    assert len(ids_R) == 32
    session.observe(ids_R, [float(at < 3) for at in range(32)], [1] * 32)
    ended = session.end()
    assert (len(ended.advantages_R), len(ended.kept_R)) == (32, 8)
    assert {0, 1, 2} & set(ended.kept_R.tolist())


def test_each_step_is_in_the_ledger_and_a_resume_voids_what_was_lost(tmp_path):
    path, texts = tmp_path / "ledger.jsonl", {name: f"What is {name}?" for name in NAMES}
    first = session_of(ba.adaptive(seed=0), ledger=path, texts=texts)
    trained(first, range(2))
    first.save(tmp_path / "state.npz")
    trained(first, range(2, 4))  # lost: it was killed before the next save
    again = session_of(ba.adaptive(seed=0), ledger=path, texts=texts)
    again.load(tmp_path / "state.npz")
    trained(again, range(2, 3))
    ledger = ba.Ledger.read(path)
    assert np.bincount(ledger.frame.step.to_numpy()).tolist() == [16, 16, 16]
    written = read_texts(path)
    assert {name: written[name] for name in ledger.frame.prompt.tolist()} == {
        name: texts[name] for name in ledger.frame.prompt.tolist()
    }


@pytest.mark.parametrize(
    ("policy", "why"), [(ba.methods.ar3po(), "decides in rounds"), (ba.methods.pods(), "generates more rollouts than")]
)
def test_a_loop_that_generates_at_once_refuses_what_it_cannot_serve(policy, why):
    with pytest.raises(UnsupportedError, match=why):
        opened(policy, NAMES[:4], 16, 4, at_once=True)


def test_groups_that_would_grow_are_planned_at_once_where_the_loop_generates_once(caplog):
    ids = [f"{n}" for n in range(40)]
    counts = []
    for policy in (ba.adaptive(rounds=3), sampled(groups=2)):
        session = ba.Session(policy, ["reward"], pool=ids, at_once=True)
        for _ in range(3):
            session.begin([], 16, 4)
            ids_R = session.request()
            session.observe(ids_R, np.zeros(len(ids_R)), np.ones(len(ids_R), dtype=int))
            assert not session.request()
            session.end()
            counts.append(ids_R)
    assert counts[:3] == counts[3:]
    assert caplog.text.count("decides once a step here, without rounds: rewards come only after a step.") == 1


def test_hints_are_refused():
    policy = ba.methods.on_all_fail(ba.uniform(), list, rollouts=2, share=0.5, fewest=1)
    session, ids_R = opened(policy, NAMES[:2], 8, 4)
    session.observe(ids_R, [0.0] * len(ids_R), [1] * len(ids_R))
    with pytest.raises(UnsupportedError, match="requests rollouts with a hint"):
        session.request()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((["q0"], [1.0], [3, 4]), r"lengths_R=\[3, 4\]: give a number of tokens for each of 1 rollouts"),
        ((["q0", "q1"], [[1, 2], [3, 4]], [1, 1]), r"for 2 ids and the rewards \['reward'\]"),
        ((["q0"], ["x"], [1]), "scores_RF"),
    ],
)
def test_bad_rollouts_are_refused_and_the_step_goes_on(given, message):
    session, _ = opened(ba.uniform(), NAMES[:2], 4, 2)
    with pytest.raises(InputError, match=message):
        session.observe(*given)
    session.observe(["q0"] * 2 + ["q1"] * 2, [0, 1, 1, 1], [1] * 4)
    assert session.end().advantages_R.tolist() == [-0.5, 0.5, 0, 0]


def test_rollouts_that_were_not_requested_are_refused_and_the_step_goes_on():
    """What exactly is refused: tests/policies/test_step.py."""
    session, _ = opened(ba.uniform(), NAMES[:2], 4, 2)
    with pytest.raises(InputError, match="'elsewhere', which is not a prompt of this step"):
        session.observe(["q0"] * 2 + ["elsewhere"], [0] * 3, [1] * 3)
    session.observe(["q0"], [0], [1])  # in several calls
    session.observe(["q0", "q1", "q1"], [1, 1, 1], [1] * 3)
    with pytest.raises(InputError, match="ids_R holds 1 rollouts of 'q0' after 2 before"):
        session.observe(["q0"], [1], [1])
    assert session.end().advantages_R.tolist() == [-0.5, 0.5, 0, 0]
    assert session.policy.estimator.step == 1


def test_rollouts_that_failed_may_be_missing():
    session, _ = opened(ba.uniform(), NAMES[:2], 8, 4)
    session.observe(["q0", "q0"], [0, 1], [1, 1])
    assert session.request() == []
    assert session.end().advantages_R.tolist() == [-0.5, 0.5]


def test_calls_in_the_wrong_order_are_named():
    session = session_of(ba.uniform())
    for _ in range(2):
        for call in (lambda: session.observe(["q0"], [1.0], [1]), session.request, session.end, session.record):
            with pytest.raises(InputError, match=r"No step has begun: call begin\("):
                call()
        session.begin(NAMES[:1], 2, 2)
        with pytest.raises(InputError, match=r"no rollouts yet: observe\(\) some"):
            session.end()
        assert session.request() == ["q0", "q0"]
        with pytest.raises(InputError, match=r"request\(\) before observe\(\): first observe the 2 rollouts"):
            session.request()
        with pytest.raises(InputError, match=r"end\(\): .* wants more rollouts"):
            session.end()
        session.observe(["q0"] * 2, [1.0, 0.0], [1, 1])
        session.end()
    assert session.policy.estimator.step == 2


def test_begin_drops_a_step_that_has_not_ended():
    session, _ = opened(ba.uniform(), NAMES[:2], 4, 2)
    session.observe(["q0"], [1.0], [1])
    session.begin(NAMES[2:4], 4, 2)
    with pytest.raises(InputError, match="'q0', which is not a prompt of this step"):
        session.observe(["q0"], [1.0], [1])
    session.observe(["q2", "q2"], [1.0, 0.0], [1, 1])
    session.end()
    assert session.policy.cold(["q0", "q2"]).tolist() == [True, False]


@pytest.mark.filterwarnings("error")  # of means of nothing
def test_a_step_whose_rollouts_all_failed_ends():
    session, _ = opened(ba.adaptive(), NAMES[:2], 4, 2)
    session.observe([], [], [])
    assert session.request() == []
    ended = session.end()
    assert (ended.advantages_R.size, ended.kept_R.size, ended.batch) == (0, 0, None)
    assert session.policy.estimator.step == 1


def test_the_policy_and_the_range_learn_from_a_step():
    session, _ = opened(ba.thompson(), ["a", "b"], 4, 2, pool=["a", "b", "c", "d"], candidates=1)
    session.observe(["a", "b", "a"], [0.0, 3.0, 3.0], [5, 6, 7])
    metrics = session.end(np.array([1.0, -1.0, 0.0])).metrics
    assert session.policy.estimator.step == 1
    assert session.policy.belief(["b"]).mean > 0.5
    assert session.scoring.range.range == (-6.5, 9.5)  # of three rewards, with a margin
    assert metrics["pool_seen"] == 0.0  # of the prompts, before the step
    assert metrics["advantage/frac_nonzero"] == pytest.approx(2 / 3)
    assert "hinted" not in metrics


def test_a_step_that_cannot_be_written_is_not_learned_and_can_end_later():
    session, _ = opened(ba.thompson(), ["a", "b"], 4, 2, candidates=1)
    session.observe(["a", "b", "a"], [0.0, 3.0, 3.0], [5, 6, 7])
    before = session.policy.state_dict(), session.scoring.state_dict()

    def full_disk(_):
        raise OSError("No space left on device")

    session.written = [full_disk]
    with pytest.raises(OSError, match="No space left"):
        session.end()
    assert session.scoring.state_dict() == before[1]
    assert session.policy.state_dict()["step"] == before[0]["step"] == 0
    session.written = []
    session.end()
    assert session.policy.estimator.step == 1


def test_a_second_thread_is_refused_while_one_is_inside():
    session, ids_R = opened(ba.uniform(), NAMES[:1], 2, 2)
    inside, done, errors = threading.Event(), threading.Event(), []

    class Slow(list):
        def __len__(self):
            inside.set()
            done.wait(10)
            return super().__len__()

    thread = threading.Thread(target=lambda: session.observe(Slow(ids_R), [1.0, 0.0], [1, 1]))
    thread.start()
    inside.wait(10)
    try:
        session.begin(["q0"], 2, 2)
    except InputError as error:
        errors.append(str(error))
    done.set()
    thread.join()
    assert session.end().advantages_R.tolist() == [0.5, -0.5]  # which the first has observed
    assert errors == ["begin() while another thread is in this session: let one thread drive it at a time."]


def test_a_copy_in_the_middle_of_a_step_goes_on_alone():
    """tinker-cookbook copies its datasets, and a session with them."""
    session, ids_R = opened(ba.uniform(), NAMES[:2], 4, 2)
    other = copy.deepcopy(session)
    for each in (session, other):
        each.observe(ids_R, [1.0, 0.0, 1.0, 1.0], [1] * 4)
    assert other.end().advantages_R.tolist() == session.end().advantages_R.tolist()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a platform without fork")
def test_a_fork_is_refused():
    session, _ = opened(ba.uniform(), NAMES[:2], 4, 2)
    child = os.fork()
    if not child:
        try:
            session.request()
        except InputError as error:
            os._exit(7 if "in a fork of process" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        ("adaptive", {"floor": -1}, "floor=-1"),
        ("adaptive", {"flor": 1}, "flor= is unknown, did you mean floor"),
        ("adaptive", {"resolved": RESOLVED, "floor": 2}, r"Session\(resolved=\) replaces"),
        ("adaptive", {"resolved": RESOLVED, "trainer_scale": "group"}, r"Session\(resolved=\) replaces"),
        ("adaptive", {"quotas": {"math": (0, 1)}}, "quotas=.* without domain="),
        ("adaptive", {"mixture": "learn"}, "mixture='learn' without domain="),
        ("adaptive", {"mixture": "lern", "domain": {"a": 1}}, "mixture='lern'"),
        ("adaptive", {"domain": {"a": 1}, "quotas": {}}, "quotas={}"),
        ("adaptive", {"domain": ["a"], "mixture": "learn"}, r"domain=\['a'\]"),
        ("adaptive", {"domain": {"a": 1, "b": 1}, "mixture": "learn"}, "all prompts have the domain 1"),
        ("adaptive", {"features": "text"}, "features= is unknown"),
        ("adaptve", {}, "policy 'adaptve' is unknown"),
        ("adaptive", {"ledger": 5}, "ledger=5"),
        ("adaptive", {"ledger": "/dev/null/ledger"}, "ledger='/dev/null/ledger' cannot be written"),
        ("adaptive", {"success": "right"}, "success='right'"),
    ],
)
def test_a_bad_argument_is_refused_when_the_session_is_made(policy, options, message):
    with pytest.raises(InputError, match=message):
        session_of(policy, **options)


@pytest.mark.parametrize("given", [{"candidates": 1}, {"candidates": 2, "floor": 2}, {"candidates": "all", "floor": 1}])
def test_a_fallback_under_a_floor_goes_on_with_equal_counts(given):
    session = Session("adaptive", ["reward"], pool=list("abcdefgh"), **given)
    part_of(session, UniformFallback).uniform = True
    session.begin(list("abcd"), 32, 8)
    counts = Counter(session.request())
    assert sum(counts.values()) == 32
    assert set(counts.values()) == {32 // len(counts)}


# --- several open steps ---


def asked(session):
    """Begins a step, and suspends it after its request."""
    session.begin(NAMES[:4], 16, 4)
    ids_R = session.request()
    session.suspend()
    return ids_R


def test_suspended_steps_are_resumed_in_their_order_and_draw_otherwise():
    session, policy = session_of(ba.adaptive(seed=0)), ba.adaptive(seed=0)
    plans = [asked(session) for _ in range(3)]
    assert session.number == 3
    budget = session.options.bounds.budget(16, len(NAMES), 4)
    for ahead, ids_R in enumerate(plans):
        step = policy.begin(NAMES, budget, ahead=ahead)
        assert Counter(ids_R) == +Counter(dict(zip(NAMES, step.request().tolist(), strict=True)))
    assert Counter(plans[0]) != Counter(plans[1])
    for at, ids_R in enumerate(plans):
        session.resume()
        assert session.step.number == session.policy.estimator.step == at
        session.observe(ids_R, [1] * 16, [1] * 16)
        assert session.request() == []
        assert session.end().batch.policy_step == at
        policy.observe(ids_R, [1] * 16)
    assert np.array_equal(session.policy.state_dict()["evidence"], policy.state_dict()["evidence"])


def test_a_policy_in_rounds_goes_on_after_later_steps_have_begun():
    session = session_of(ba.methods.reinforce_ada(group=4, more=4, stages=2))
    first, second = asked(session), asked(session)
    session.resume()
    session.observe(first, [0] * len(first), [1] * len(first))
    more = session.request()
    assert more  # of prompts without a success
    session.suspend()
    session.resume()  # still the first step
    assert session.step.round == 1
    session.observe(more, [1] * len(more), [1] * len(more))
    while ids_R := session.request():
        session.observe(ids_R, [1] * len(ids_R), [1] * len(ids_R))
    assert len(session.end().batch) >= len(first) + len(more)
    session.resume()
    session.observe(second, [1] * len(second), [1] * len(second))


def test_wrong_calls_with_suspended_steps():
    session = session_of(ba.uniform())
    with pytest.raises(InputError, match="resume"):
        session.resume()
    with pytest.raises(InputError, match="No step has begun"):
        session.suspend()
    asked(session)
    with pytest.raises(InputError, match="No step has begun"):
        session.observe([], [], [])
    session.resume()
    with pytest.raises(InputError, match="first observe the 16 rollouts"):
        session.request()
    with pytest.raises(InputError, match="ahead=-1"):
        session.policy.begin(NAMES, ba.Budget(rollouts=24), ahead=-1)


def test_rollouts_that_never_come_are_counted_and_charged_and_teach_nothing():
    session = session_of(ba.adaptive(seed=0), cost="tokens", cost_per_step=1000)
    budget = part_of(session, Costs).budget
    for _ in range(3):
        ids_R = asked(session)
        session.resume()
        session.observe(ids_R, [1] * 16, [100] * 16)
        assert session.request() == []
        assert "lost" not in session.end().metrics
    spent, ids_R = budget.spent, asked(session)
    session.resume()
    lost = ids_R[0]
    came = [name for name in ids_R if name != lost]
    before = session.policy.belief([lost])
    session.observe(came, [1] * len(came), [100] * len(came))
    assert session.request() == []
    metrics = session.end().metrics
    assert metrics["lost"] == 16 - len(came) > 0

    assert budget.spent - spent == pytest.approx(1600, rel=0.05)  # as if all had come
    after = session.policy.belief([lost])
    assert after.alpha_P + after.beta_P <= before.alpha_P + before.beta_P  # evidence only fades

    harder = session_of(ba.knapsack(seed=0), metrics="all")
    harder.policy.observe(["q0"] * 8 + ["q1"] * 8, [0] * 7 + [1] * 8 + [0])
    harder.begin(NAMES[:2], 16, 8)
    ids_R = harder.request()
    came = [name for name in ids_R if name == "q1"]
    harder.observe(came, [1] * len(came), [1] * len(came))
    assert harder.end().metrics["lost/easier"] > 0.1


def test_prompts_that_never_return_are_said_once(caplog):
    session = ba.Session("knapsack", ["reward"], candidates=1)
    for step in range(19 + 1 + 30):
        ids = ["q0", "q1"] if step == 19 else [f"q{2 * step}", f"q{2 * step + 1}"]
        session.begin(ids, 4, 2)
        ids_R = session.request()
        session.observe(ids_R, [0, 1] * (len(ids_R) // 2), [1] * len(ids_R))
        session.end()
        assert ("candidates='all'" in caplog.text) == (step >= 39)
    assert caplog.text.count("No prompt of the last 20 batches had been seen before") == 1


@pytest.mark.parametrize("bad", [np.inf, -np.inf, 1e301])
def test_infinite_rewards_count_as_none(caplog, bad):
    """A weight of 0 leaves the other rewards of a rollout."""
    sessions = [ba.Session(ba.adaptive(), ["a", "b"], [1.0, 0.0], candidates=1) for _ in range(2)]
    ended = []
    for session, value in zip(sessions, (bad, np.nan), strict=True):
        for _ in range(2):
            session.begin(["x", "y"], rollouts=8, group=4)
            while ids_R := session.request():
                scores_RF = np.resize([[0.0, 1.0], [1.0, 0.0]], (len(ids_R), 2))
                scores_RF[0, 0], scores_RF[1, 1] = value, value
                session.observe(ids_R, scores_RF, [3] * len(ids_R))
            ended.append(session.end())
    for one, other in zip(ended[:2], ended[2:], strict=True):
        assert np.isfinite(one.advantages_R).all()
        assert one.advantages_R.tolist() == other.advantages_R.tolist()
        assert np.isnan(one.batch.rewards_R[0])
        assert not np.isnan(one.batch.rewards_R[1:]).any()
    assert caplog.text.count("an infinite reward, from 'a' and 'b'") == 1


def test_a_policy_leaves_out_infinite_rewards():
    policy, other = ba.knapsack(), ba.knapsack()
    policy.observe(["a", "a", "b"], [1, np.inf, 0])
    other.observe(["a", "a", "b"], [1, None, 0])
    assert policy.belief(["a", "b"]).mean.tolist() == other.belief(["a", "b"]).mean.tolist()


@pytest.mark.parametrize("name", ["lengths_R", "prompt_lengths_R"])
@pytest.mark.parametrize("wrong", [[None, 3], [-1, 3], [float("inf"), 3], [3], [[3, 3]], ["3", "4"]])
def test_lengths_that_are_no_numbers_of_tokens_are_refused_and_the_step_goes_on(name, wrong):
    session, ids = opened("uniform", ["q0"], 2, 2)
    with pytest.raises(InputError, match="lengths_R"):
        session.observe(ids, [0.0, 1.0], **{"lengths_R": [3, 4], name: wrong})
    session.observe(ids, [0.0, 1.0], [3, 4], prompt_lengths_R=[5, 5])
    batch = session.end().batch
    assert (batch.lengths_R.tolist(), batch.prompt_lengths_R.tolist()) == ([3, 4], [5, 5])


def test_a_session_without_a_pool_says_which_argument_lacks():
    session = Session(ba.adaptive(), ["reward"])
    with pytest.raises(InputError, match=r"pass Session\(pool=\)") as caught:
        session.begin([], 2, 2)
    assert caught.value.argument == "pool"
    session, _ = opened("uniform", ["q0"], 2, 2)
    with pytest.raises(InputError, match=r"no rollouts yet: observe\(\) some"):
        session.record()


def test_an_error_in_observe_books_nothing():
    session, ids_R = opened("uniform", ["q0", "q1"], 4, 2)
    with pytest.raises(InputError, match="give a group for each of 4 rollouts"):
        session.observe(ids_R, [1, 0, 1, 1], [5] * 4, groups_R=["g"])
    assert session.step.observed == 0
    session.observe(ids_R, [1, 0, 1, 1], [5] * 4)
    assert len(session.end().batch) == 4


def test_a_state_that_does_not_fit_changes_neither_the_policy_nor_any_part():
    session, other = (session_of("adaptive", parts=[Shadow("knapsack"), Counts(n)]) for n in (7, 1))
    session.begin([], 8, 4)
    ids_R = session.request()
    session.observe(ids_R, [float(RATES[x] > 0.5) for x in ids_R], [1] * len(ids_R))
    session.end()
    state = session.state()
    state["parts"]["Counts"] = {"step": -1}
    with pytest.raises(StateError, match="a step of -1"):
        other.restore(state)
    shadow, counts = other.parts[-2:]
    assert [len(each.policy.estimator) for each in (other, shadow.session)] == [0, 0]
    assert (counts.number, other.scoring.sums.n) == (1, 0.0)


class Counts(Part):
    """Keeps a number under keys that other parts and the policy use."""

    def __init__(self, number):
        self.number = number

    def state_dict(self):
        return {"step": self.number, "seed": "mine", "rails": {}, "parts": 1}

    def load_state_dict(self, state):
        self.number = state.get("step", 0)
        if self.number < 0:
            raise StateError(f"a step of {self.number}")


def test_every_part_has_a_name_space_of_its_own_in_a_checkpoint(tmp_path):
    def new(*numbers):
        return session_of("adaptive", parts=[*map(Counts, numbers), Shadow("knapsack"), Shadow("uniform")])

    session = new(7, 8)
    for _ in range(3):
        session.begin([], 8, 4)
        ids = session.request()
        session.observe(ids, [float(RATES[x] > 0.5) for x in ids], [1] * len(ids))
        session.end()
    session.save(tmp_path / "state.npz")
    other = new(0, 0)
    other.load(tmp_path / "state.npz")
    assert other.policy.estimator.step == 3
    numbers = [part.number for part in other.parts if isinstance(part, Counts)]
    shadows = [part.session.policy for part in other.parts if isinstance(part, Shadow)]
    assert numbers == [7, 8]
    assert [policy.name.partition("(")[0] for policy in shadows] == ["knapsack", "uniform"]
    assert [policy.estimator.step for policy in shadows] == [3, 3]
    assert repr(other.state()) == repr(session.state())


@pytest.mark.parametrize("weight", ["rollout", "prompt"])
def test_where_the_trainer_divides_advantages_without_a_division_have_the_same_size(weight):
    """Also with rewards that are missing. In a trainer that does not divide they are as they are."""

    def sizes(scale, own):
        session = Session(
            sampled(groups=2), ["reward"], pool=range(40), scale=scale, weight=weight, trainer_scale=own, quiet=True
        )
        rng, found = np.random.default_rng(0), []
        for _ in range(12):
            session.begin([], rollouts=32, group=8)
            ids_R = session.request()
            rewards_R = (rng.random(len(ids_R)) < np.array(ids_R) / 40).astype(float)
            rewards_R[rng.random(len(ids_R)) < 0.1] = np.nan
            session.observe(ids_R, rewards_R, np.ones(len(ids_R)))
            found.append(np.sqrt(np.mean(session.end().advantages_R ** 2)))
        return np.array(found)

    divided, as_large, plain = sizes("group", "group"), sizes("none", "group"), sizes("none", "none")
    assert as_large == pytest.approx(divided)
    assert (plain < 0.6 * as_large).all()


def test_the_scale_of_a_loop_is_the_trainers_unless_it_is_to_be_divided():
    for given, scale, own in ((None, "none", "group"), ("group", "none", "group"), ("none", "none", "none")):
        options = Session(ba.adaptive(), ["reward"], pool=["a"], trainer_scale=given, quiet=True).options
        assert (options.scale, options.trainer_scale) == (scale, own)
    assert Session(ba.uniform(), ["reward"]).options.trainer_scale == "none"
    run = Session(ba.uniform(), ["reward"], pool=["a", "b"], shadow=ba.adaptive())
    assert next(part for part in run.parts if isinstance(part, Shadow)).session.options.trainer_scale == "group"

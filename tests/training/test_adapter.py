"""The core of a short adapter: against the policy's own steps, group_advantages, and a run that never stopped."""

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc import InputError, StateError, UnsupportedError, policies
from budgetalloc.logs.prompt_texts import read_texts
from budgetalloc.training.adapter import Attached

NAMES = [f"q{k}" for k in range(12)]
RATES = dict(zip(NAMES, np.linspace(0, 1, 12), strict=True))


def trained(attached, steps, rewards=1):
    """The counts and advantages of these steps; the successes follow from the step's number."""
    run = []
    for step in steps:
        counts = attached.begin(NAMES[:4], NAMES, 16, 4)
        ids_R = [name for name, count in counts.items() for _ in range(count)]
        success_R = np.random.default_rng(step).random(len(ids_R)) < [RATES[name] for name in ids_R]
        rewards_RF = np.stack([5.0 * success_R - 2, success_R][:rewards], axis=1)
        assert attached.observe(ids_R, rewards_RF, np.ones(len(ids_R))) == {}
        run.append((counts, attached.end()[0]))
    return run


def same(one, other):
    return all(a[0] == b[0] and np.array_equal(a[1], b[1]) for a, b in zip(one, other, strict=True))


def test_uniform_has_the_advantages_of_groups():
    attached = Attached(ba.uniform(), ["reward"])
    assert attached.of_groups
    assert attached.begin(NAMES[:2], [], 8, 4) == {"q0": 4, "q1": 4}
    ids_R, rewards_R = ["q0"] * 4 + ["q1"] * 4, [1.0, 0, 0, 0, 1, 1, 0.5, 0]
    attached.observe(ids_R, rewards_R, [1] * 8)
    advantages_R, kept_R = attached.end()
    assert kept_R.tolist() == list(range(8))
    assert advantages_R == pytest.approx(ba.group_advantages(rewards_R, ids_R, scale="none"), abs=1e-12)


def test_a_policy_chooses_from_the_pool_and_compares_with_its_beliefs():
    attached = Attached(ba.adaptive(seed=0), ["reward"])
    assert not attached.of_groups
    run = trained(attached, range(8))
    assert all(sum(counts.values()) == 16 for counts, _ in run)
    assert set().union(*(counts for counts, _ in run)) == set(NAMES)
    singles = [
        advantage
        for counts, advantages_R in run
        for name, advantage in zip(np.repeat(list(counts), list(counts.values())), advantages_R, strict=True)
        if counts[name] == 1
    ]
    assert np.any(np.array(singles) != 0)


def test_success_is_one_of_the_rewards_and_the_range_of_others_is_learned():
    named = Attached(ba.adaptive(seed=0), ["reward", "success"], success="success")
    learned = Attached(ba.adaptive(seed=0), ["reward"])
    assert [counts for counts, _ in trained(named, range(5), 2)] == [counts for counts, _ in trained(learned, range(5))]
    assert named.policy.belief(NAMES).mean == pytest.approx(learned.policy.belief(NAMES).mean)


def test_a_run_that_loads_decides_as_one_that_never_stopped(tmp_path):
    whole = trained(Attached(ba.adaptive(seed=0), ["reward"]), range(6))
    stopped, resumed = Attached(ba.adaptive(seed=0), ["reward"]), Attached(ba.adaptive(seed=0), ["reward"])
    first = trained(stopped, range(3))
    stopped.save(tmp_path / "state.npz")
    resumed.load(tmp_path / "state.npz")
    assert same(first + trained(resumed, range(3, 6)), whole)


def test_a_damaged_file_is_refused_and_nothing_changes(tmp_path):
    (tmp_path / "state.npz").write_bytes(b"no state")
    attached = Attached(ba.adaptive(seed=0), ["reward"])
    with pytest.raises(StateError, match=r"state\.npz"):
        attached.load(tmp_path / "state.npz")
    assert same(trained(attached, range(3)), trained(Attached(ba.adaptive(seed=0), ["reward"]), range(3)))


def test_rounds_follow_what_the_rounds_before_have_shown():
    attached = Attached(policies.reinforce_ada(seed=0), ["reward"])
    counts, asked, ids_R = attached.begin(NAMES[:4], [], 64, 16), [], []
    while counts:
        asked.append(counts)
        ids_K = [name for name, count in counts.items() for _ in range(count)]
        counts = attached.observe(ids_K, [float(name == "q0") for name in ids_K], [1] * len(ids_K))
        ids_R += ids_K
    assert len(asked) > 1
    advantages_R, kept_R = attached.end()
    assert len(advantages_R) == len(ids_R) >= len(kept_R)
    assert attached.policy.estimator.step == 1


def test_a_policy_that_generates_more_trains_on_what_it_keeps():
    attached = Attached(policies.pods(), ["reward"])
    counts = attached.begin(NAMES[:2], [], 8, 4)
    ids_R = [name for name, count in counts.items() for _ in range(count)]
    assert len(ids_R) == 32
    attached.observe(ids_R, [float(at < 3) for at in range(32)], [1] * 32)
    advantages_R, kept_R = attached.end()
    assert (len(advantages_R), len(kept_R)) == (32, 8)
    assert {0, 1, 2} & set(kept_R.tolist())


def test_each_step_is_in_the_ledger_and_a_resume_voids_what_was_lost(tmp_path):
    path, texts = tmp_path / "ledger.jsonl", {name: f"What is {name}?" for name in NAMES}
    first = Attached(ba.adaptive(seed=0), ["reward"], ledger=path, texts=texts)
    trained(first, range(2))
    first.save(tmp_path / "state.npz")
    trained(first, range(2, 4))  # lost: it was killed before the next save
    again = Attached(ba.adaptive(seed=0), ["reward"], ledger=path, texts=texts)
    again.load(tmp_path / "state.npz")
    trained(again, range(2, 3))
    ledger = ba.Ledger.read(path)
    assert np.bincount(ledger.step_R).tolist() == [16, 16, 16]
    written = read_texts(path)
    assert {name: written[name] for name in ledger.ids_R} == {name: texts[name] for name in ledger.ids_R}


@pytest.mark.parametrize(
    ("policy", "why"), [(policies.ar3po(), "decides in rounds"), (policies.pods(), "generates more rollouts than")]
)
def test_a_loop_that_generates_at_once_refuses_what_it_cannot_serve(policy, why):
    with pytest.raises(UnsupportedError, match=why):
        Attached(policy, ["reward"], at_once=True).begin(NAMES[:4], NAMES, 16, 4)


def test_hints_are_refused():
    attached = Attached(policies.on_all_fail(ba.uniform(), list, rollouts=2, share=0.5, fewest=1), ["reward"])
    counts = attached.begin(NAMES[:2], [], 8, 4)
    ids_R = [name for name, count in counts.items() for _ in range(count)]
    with pytest.raises(UnsupportedError, match="requests rollouts with a hint"):
        attached.observe(ids_R, [0.0] * len(ids_R), [1] * len(ids_R))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"floor": -1}, "floor=-1"),
        ({"flor": 1}, r"Attached\(flor=\) is unknown.* floor"),
        ({"quotas": {}}, r"Attached\(quotas=\) is unknown"),
    ],
)
def test_a_bad_option_is_named(options, message):
    with pytest.raises(InputError, match=message):
        Attached(ba.adaptive(), ["reward"], **options)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((["q0"], [1.0], [3, 4]), r"rewards_KF has shape \(1,\) and lengths_K \(2,\) for 1 ids"),
        (
            (["q0", "q1"], [[1, 2], [3, 4]], [1, 1]),
            r"rewards_KF has shape \(2, 2\) .* for 2 ids and the rewards \['reward'\]",
        ),
        ((["q0"], ["x"], [1]), "rewards_KF"),
    ],
)
def test_bad_rollouts_are_refused_and_the_step_goes_on(given, message):
    attached = Attached(ba.uniform(), ["reward"])
    attached.begin(NAMES[:2], [], 4, 2)
    with pytest.raises(InputError, match=message):
        attached.observe(*given)
    attached.observe(["q0"] * 2 + ["q1"] * 2, [0, 1, 1, 1], [1] * 4)
    assert attached.end()[0].tolist() == [-0.5, 0.5, 0, 0]


@pytest.mark.parametrize(
    ("ids_K", "message"),
    [
        (["elsewhere"], "'elsewhere', which is not a prompt of this step"),
        (["q0"] * 2 + ["elsewhere"] * 98, "'elsewhere', which is not a prompt of this step"),
        (["q0"] * 50 + ["q1"] * 50, "ids_R holds 50 rollouts of 'q[01]', and 2 were requested in this step"),
        (["q1"] * 3, "ids_R holds 3 rollouts of 'q1', and 2 were requested"),
    ],
)
def test_rollouts_that_were_not_requested_are_refused_and_the_step_goes_on(ids_K, message):
    attached = Attached(ba.uniform(), ["reward"])
    attached.begin(NAMES[:2], [], 4, 2)
    with pytest.raises(InputError, match=message):
        attached.observe(ids_K, np.arange(len(ids_K)), [1] * len(ids_K))
    attached.observe(["q0"], [0], [1])  # in several calls
    attached.observe(["q0", "q1", "q1"], [1, 1, 1], [1] * 3)
    with pytest.raises(InputError, match="ids_R holds 1 rollouts of 'q0' after 2 before, and 2 were requested"):
        attached.observe(["q0"], [1], [1])
    assert attached.end()[0].tolist() == [-0.5, 0.5, 0, 0]
    assert attached.policy.estimator.step == 1


def test_rollouts_that_failed_may_be_missing():
    attached = Attached(ba.uniform(), ["reward"])
    attached.begin(NAMES[:2], [], 8, 4)
    assert attached.observe(["q0", "q0"], [0, 1], [1, 1]) == {}
    assert attached.end()[0].tolist() == [-0.5, 0.5]


def test_calls_in_the_wrong_order_are_named():
    attached = Attached(ba.uniform(), ["reward"])
    for _ in range(2):
        with pytest.raises(InputError, match=r"observe\(\) before begin\(\): call begin"):
            attached.observe(["q0"], [1.0], [1])
        with pytest.raises(InputError, match=r"end\(\) before begin\(\)"):
            attached.end()
        attached.begin(NAMES[:1], [], 2, 2)
        attached.observe(["q0"] * 2, [1.0, 0.0], [1, 1])
        attached.end()
    assert attached.policy.estimator.step == 2


def test_a_step_does_not_end_while_the_policy_wants_more():
    attached = Attached(policies.ar3po(seed=0), ["reward"])
    first = attached.begin(NAMES[:4], NAMES, 32, 8)
    ids_R = [name for name, count in first.items() for _ in range(count)]
    more = attached.observe(ids_R, [float(name == "q0") for name in ids_R], [1] * len(ids_R))
    assert more
    with pytest.raises(InputError, match=f"decides in rounds and wants {sum(more.values())} more rollouts"):
        attached.end()
    while more:
        ids_K = [name for name, count in more.items() for _ in range(count)]
        ids_R += ids_K
        more = attached.observe(ids_K, [0.0] * len(ids_K), [1] * len(ids_K))
    assert len(attached.end()[0]) == len(ids_R) == 32
    assert attached.policy.estimator.step == 1


def test_begin_drops_a_step_that_has_not_ended():
    attached = Attached(ba.uniform(), ["reward"])
    attached.begin(NAMES[:2], [], 4, 2)
    attached.observe(["q0"], [1.0], [1])
    attached.begin(NAMES[2:4], [], 4, 2)
    with pytest.raises(InputError, match="'q0', which is not a prompt of this step"):
        attached.observe(["q0"], [1.0], [1])
    attached.observe(["q2", "q2"], [1.0, 0.0], [1, 1])
    attached.end()
    assert attached.policy.cold(["q0", "q2"]).tolist() == [True, False]


@pytest.mark.filterwarnings("error")  # of means of nothing
def test_a_step_whose_rollouts_all_failed_ends():
    attached = Attached(ba.adaptive(), ["reward"])
    attached.begin(NAMES[:2], NAMES, 4, 2)
    assert attached.observe([], [], []) == {}
    advantages_R, kept_R = attached.end()
    assert (advantages_R.size, kept_R.size, attached.policy.estimator.step) == (0, 0, 1)


def test_a_step_without_rollouts_does_not_end():
    attached = Attached(ba.uniform(), ["reward"])
    attached.begin(NAMES[:2], [], 8, 4)
    with pytest.raises(InputError, match="end\\(\\) before observe"):
        attached.end()


@pytest.mark.parametrize("policy", ["uniform", ba.uniform, ba.uniform()])
def test_a_policy_may_be_a_name_or_a_function(policy):
    assert Attached(policy, ["reward"]).policy.name == ba.uniform().name


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        ("adaptve", {}, r"policy 'adaptve' is unknown, did you mean adaptive\?"),
        (5, {}, "policy=5 is of type int: give a policy"),
        ("adaptive", {"ledger": 5}, "ledger=5 is of type int"),
        ("adaptive", {"ledger": "/dev/null/ledger"}, "ledger='/dev/null/ledger' cannot be written"),
        ("adaptive", {"success": "right"}, r"success='right': the trainer has no reward function .*\['reward'\]"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_attached(policy, options, message):
    with pytest.raises(InputError, match=message):
        Attached(policy, ["reward"], **options)

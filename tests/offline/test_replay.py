"""The Replay world: logged rewards once each, then a model that is counted, whatever the order of anything."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budgetalloc as ba
from budgetalloc import InputError, Replay
from budgetalloc.offline.worlds import World


def ledger(visits, steps=None):
    """From {id: [rewards of a visit, ...]}; visit v is step v, or steps[id][v]."""
    rows = [
        (steps[name][v] if steps else v, name, reward)
        for name, of_prompt in visits.items()
        for v, rewards in enumerate(of_prompt)
        for reward in rewards
    ]
    step, ids, rewards = zip(*rows, strict=True)
    return ba.Ledger.of_frame(pd.DataFrame({"step": step, "prompt": ids, "reward": rewards}))


NAN = float("nan")
TINY = {
    "a": [[0, 0, 0, 1], [0, 1, 0, 1], [1, 1, 1, 1]],
    "b": [[0.25, 0.5, 0.75, 1.0]],
    7: [[0, 0], [1, 1, 1]],
}


@pytest.mark.parametrize("seed", range(5))
def test_each_logged_reward_is_drawn_once_before_the_model_answers(seed):
    world = Replay(ledger(TINY), seed=seed)
    assert world.ids == ["a", "b", 7]
    assert world.sweeps == 3
    rewards_R = world.rollout(["b", "a", "b", "a", "b", "a", "b", "a"])
    assert sorted(rewards_R[::2]) == [0.25, 0.5, 0.75, 1.0]
    assert sorted(rewards_R[1::2]) == [0, 0, 0, 1]
    assert (world.drawn, world.modelled) == (8, 0)
    assert set(world.rollout(["b"] * 3 + [7] * 4)) <= {0, 0.25, 0.5, 0.75, 1}
    assert (world.drawn, world.modelled) == (10, 5)
    world.sweep = 1
    assert sorted(world.rollout(["a", "a", "a", "a", 7, 7, 7])) == [0, 0, 1, 1, 1, 1, 1]
    assert (world.drawn, world.modelled) == (17, 5)


def test_visits_are_the_steps_in_which_a_prompt_came():
    """Prompt b came at steps 5 and 9 only: those are its visits 0 and 1, as steps 2 and 3 are a's."""
    world = Replay(ledger({"a": [[0, 0], [1, 1]], "b": [[1, 1], [0, 0]]}, {"a": [2, 3], "b": [5, 9]}))
    assert world.rollout(["a", "b"]).tolist() == [0, 1]
    world.sweep = 1
    assert world.rollout(["a", "b"]).tolist() == [1, 0]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from(["a", "b", 7]), min_size=1, max_size=30), st.integers(0, 2), st.randoms())
def test_answers_do_not_depend_on_any_order(ids_R, sweep, random):
    """Neither of the ids, nor of the ledger's rows, nor on how many calls there were, nor on other prompts."""
    rows = ledger(TINY)
    worlds = [Replay(rows, seed=3) for _ in range(3)]
    order = random.sample(range(len(rows)), len(rows))
    worlds.append(Replay(ba.Ledger(rows.frame.iloc[order]), seed=3))
    for world in worlds:
        world.sweep = sweep
    turned = random.sample(ids_R, len(ids_R))
    answers = []
    for world, ids, calls in zip(worlds, (ids_R, turned, ids_R, turned), (1, 1, len(ids_R), 2), strict=True):
        rewards = np.concatenate([world.rollout(list(part)) for part in np.array_split(np.array(ids, object), calls)])
        answers.append({x: [r for r, y in zip(rewards.tolist(), ids, strict=True) if x == y] for x in set(ids)})
    assert all(answer == answers[0] for answer in answers)
    alone = Replay(rows, seed=3)
    alone.sweep = sweep
    assert alone.rollout([ids_R[0]] * len(answers[0][ids_R[0]])).tolist() == answers[0][ids_R[0]]


@pytest.mark.parametrize("seed", range(3))
def test_modelled_rewards_are_marked_row_by_row(seed):
    """The first rows of a prompt are the logged ones, wherever they stand; an answer replaces the marks of the last."""
    world = Replay(ledger(TINY), seed=seed)
    ids_R = ["b", 7, "a", 7, 7, "b", 7, "a"]
    rewards_R = world.rollout(ids_R)
    assert world.modelled_R.tolist() == [False, False, False, False, True, False, True, False]
    assert rewards_R[[1, 3]].tolist() == [0, 0]
    assert set(rewards_R[[0, 5]]) <= {0.25, 0.5, 0.75, 1}
    world.rollout([7, "a"])
    assert world.modelled_R.tolist() == [True, False]
    assert (world.drawn, world.modelled) == (7, 3)
    assert world.rollout([]).shape == world.modelled_R.shape == (0,)
    assert (world.drawn, world.modelled) == (7, 3)


@pytest.mark.parametrize(
    ("visits", "known"),
    [
        (TINY, ["00200140", "44344440", "04244104", "04100340", "44140344", "04240444"]),
        (
            {"a": [[0, 0, 0, 1], [0, 1, 0, 1]], "b": [[0, 1, 1, 1]], 7: [[1, 0, 0]]},
            ["00400040", "04404400", "00440004", "04440444"],
        ),
    ],
    ids=["graded", "binary"],
)
def test_answers_are_those_of_earlier_versions(visits, known):
    """In quarters, of two calls in each sweep."""
    world, answers = Replay(ledger(visits), seed=5), []
    for sweep in range(world.sweeps):
        world.sweep = sweep
        answers += [world.rollout(["a", 7, "b", "a", 7, "b", "a", "a"]) for _ in range(2)]
    assert ["".join(str(int(4 * x)) for x in rewards) for rewards in answers] == known


def test_the_log_again_with_another_seed():
    world = Replay(ledger(TINY), seed=3)
    first = world.rollout(["a"] * 9).tolist()
    world.sweep = 2
    again, other = world.again(3), world.again(4)
    assert (again.sweep, again.drawn, again.modelled, world.sweep, world.drawn) == (0, 0, 0, 2, 4)
    assert again.rollout(["a"] * 9).tolist() == first
    assert other.rollout(["a"] * 9).tolist() == Replay(ledger(TINY), seed=4).rollout(["a"] * 9).tolist() != first
    assert world.rollout(["a"] * 4).tolist() == [1] * 4  # what the copies were asked is not used up here
    assert (world.rollouts, world.group) == (21, 4)


def test_the_model_is_beta_binomial_around_the_visit():
    """30 of 50 around visit 2, then prompts alike: the mean and the spread of 8 modelled rewards are known."""
    visits = [[0] * 10, [1] * 10, [1] * 5 + [0] * 5, [1] * 10, [1] * 5 + [0] * 5, [0] * 10]
    world = Replay(ledger(dict.fromkeys(range(3000), visits)), seed=1)
    world.sweep = 2
    assert (np.bincount(np.repeat(range(3000), 10), weights=world.rollout(np.repeat(range(3000), 10))) == 5).all()
    passed = world.rollout(np.repeat(range(3000), 8)).reshape(3000, 8).sum(axis=1)
    assert world.modelled == 24_000
    belief = ba.Beta([30.5], [20.5])
    assert passed.mean() == pytest.approx(8 * 30.5 / 51, abs=0.1)
    expected = 8 * belief.moment(1, 1)[0] + 64 * belief.var[0]
    assert passed.var() == pytest.approx(expected, rel=0.1)
    # One rate a sweep: the next 8 rollouts of a prompt go with its first 8.
    again = world.rollout(np.repeat(range(3000), 8)).reshape(3000, 8).sum(axis=1)
    assert np.cov(passed, again)[0, 1] == pytest.approx(64 * belief.var[0], rel=0.4)


def test_a_prompt_with_fewer_visits_is_modelled_from_its_last():
    log = ledger({"long": [[0, 1]] * 9, **{k: [[1] * 100, [0] * 100, [0] * 100, [0] * 100] for k in range(200)}})
    world = Replay(log)
    world.sweep = 8
    assert world.rates([0]) == [0.0]  # visits 1 to 3; its first is too far from its last
    rewards_R = world.rollout([*range(200), "long", "long"])
    assert rewards_R[:200].mean() < 0.02
    assert (world.drawn, world.modelled) == (2, 200)


def test_nan_rewards_answer_nothing():
    log = ledger({"a": [[NAN, 1, 0, NAN], [NAN, NAN], [1, 1]], "b": [[NAN], [NAN]], "c": [[1], [0], [1]]})
    world = Replay(log)
    world._rewards.flags.writeable = False  # as in a task of Ray
    assert world.ids == ["a", "c"]  # b has no reward at all
    assert sorted(world.rollout(["a"] * 3)[:2]) == [0, 1]
    assert (world.drawn, world.modelled) == (2, 1)
    world.sweep = 1  # a visit without any reward is still a visit
    world.rollout(["a"])
    assert (world.drawn, world.modelled) == (2, 2)
    with pytest.raises(InputError, match="'b' has no reward in this log"):
        world.rollout(["b"])


def test_answers_are_success_not_the_total_reward():
    """Accuracy and format: a prompt that always earns the format's 1 of 2 never has success."""
    rewards_R, success_R = np.array([1, 1, 1, 2.0] * 2), np.array([0, 0, 0, 1.0] * 2)
    frame = pd.DataFrame({"step": 0, "prompt": ["never"] * 3 + ["once"] * 5, "reward": rewards_R})
    world = Replay(ba.Ledger.of_frame(frame.assign(success=success_R), reward_range=(0, 2)))
    assert world.rollout(["never"] * 3).tolist() == [0, 0, 0]
    assert world.rollout(["once"] * 5).sum() == 2
    ranged = Replay(ba.Ledger.of_frame(frame, reward_range=(0, 2)))
    assert ranged.rollout(["never"] * 3).tolist() == [0.5] * 3


def test_rates_by_hand():
    world = Replay(ledger(TINY))
    world.sweep = 1
    assert world.rates(["a", "b", 7, "a"]).tolist() == [7 / 12, 2.5 / 4, 3 / 5, 7 / 12]
    assert world.success() == pytest.approx((7 / 12 + 2.5 / 4 + 3 / 5) / 3)
    gap = Replay(ledger({"a": [[0], *[[NAN]] * 6, [1, 1]]}))
    gap.sweep = 4  # visits 2 to 6 have no reward: one more on each side
    assert gap.rates(["a"]).tolist() == [1.0]
    assert Replay(ledger({"a": [[1 / 3] * 3] * 5 + [[1.0] * 3]})).rates(["a"])[0] == pytest.approx(1 / 3)


def test_sweeps_advance_by_rollouts():
    """Sweeps of 10, 7 and 4 rollouts: the next one begins at the end of the step that has spent them."""
    world = Replay(ledger(TINY))
    first = world.rollout(["a"] * 8).tolist()
    world.sweep = 0
    seen = []
    for _ in range(6):
        world.rollout(["a"] * 4)
        world.learn(np.zeros(4))
        seen.append(world.sweep)
    assert seen == [0, 0, 1, 1, 2, 3]
    with pytest.raises(InputError, match=r"The log has ended: 24 rollouts .* 3 sweeps of 21 rollouts"):
        world.rollout(["a"])
    assert 0 < world.success() < 1
    assert world.success() == world.rates(world.ids).mean()  # not that of the first sweep
    world.sweep = 0  # a sweep that begins again gives the same answers
    assert world.rollout(["a"] * 8).tolist() == first


@pytest.mark.parametrize("policy", [ba.uniform, ba.knapsack, ba.adaptive], ids=lambda p: p.__name__)
def test_simulate_in_a_replay(policy):
    """A log whose prompts are learned visit by visit: uniform draws it to the end, and success is the log's own."""
    log = ledger({k: [[1] * v + [0] * (4 - v) for v in range(5)] for k in range(16)})
    world: World = Replay(log)
    run = list(ba.simulate(policy(seed=2), world, 32, steps=10, prompts=8))
    assert [seen["rollouts"] for seen in run] == [32 * k for k in range(1, 11)]
    assert world.sweep == 5
    success = [seen["success"] for seen in run]
    assert all(one <= two for one, two in pairwise(success))
    assert success[0] == pytest.approx((0 + 1 + 2) / 12)
    if policy is ba.uniform:
        assert (world.drawn, world.modelled) == (320, 0)
        assert [seen["reward"] for seen in run] == [0, 0, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1, 1]
    else:
        assert world.drawn + world.modelled == 320
    with pytest.raises(InputError, match="The log has ended"):
        list(ba.simulate(policy(seed=2), Replay(log), 32, steps=11, prompts=8))


def broken(reward):
    return ba.Ledger.of_frame(ledger(TINY).frame.assign(reward=reward, success=reward))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Replay(broken(2.0)), r"ledger: row 0 has the success 2, outside \[0, 1\]"),
        (lambda: Replay(broken(NAN)), r"ledger has 21 rows and none with a reward"),
        (lambda: Replay(ba.Ledger(ledger(TINY).frame[:0])), r"ledger has 0 rows"),
        (lambda: Replay(ledger(TINY)).rollout(["a", "z"]), r"ids_R: 'z' has no reward in this log"),
        (lambda: setattr(Replay(ledger(TINY)), "sweep", 3), r"sweep=3: use an integer from 0 to 2"),
        (lambda: setattr(Replay(ledger(TINY)), "sweep", -1), r"sweep=-1"),
    ],
)
def test_errors_name_the_argument(make, text):
    with pytest.raises(InputError, match=text):
        make()


graded = st.lists(
    st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0, NAN]), min_size=1, max_size=3), min_size=1, max_size=4
)


@given(graded, graded, st.integers(0, 20), st.integers(0, 9))
def test_a_graded_log_is_answered_with_rewards_that_the_prompt_had(one, other, rollouts, seed):
    visits = {"a": [*one, [0.5]], "b": [*other, [0.3]]}
    world = Replay(ledger(visits), seed=seed)
    for sweep in range(world.sweeps):
        world.sweep = sweep
        for name, of_prompt in visits.items():
            near = [x for visit in of_prompt[max(min(sweep, len(of_prompt) - 1) - 2, 0) : sweep + 3] for x in visit]
            near = {x for x in near if x == x} or {x for visit in of_prompt for x in visit if x == x}
            assert set(world.rollout([name] * rollouts).tolist()) <= near


@given(st.lists(st.sampled_from([0.0, 0.2, 0.7, 1.0]), min_size=1, max_size=12))
def test_variances_are_those_of_the_logged_rewards(rewards):
    world = Replay(ledger({"a": [rewards]}))
    assert world.variances(["a"]) == pytest.approx([np.var(rewards)], abs=1e-12)
    if set(rewards) <= {0.0, 1.0}:
        assert world.variances(["a"]) == pytest.approx(world.rates(["a"]) * (1 - world.rates(["a"])))

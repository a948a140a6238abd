"""A schedule of lengths and a cap for each prompt, in TRL's real trainer."""

import numpy as np
import pytest
import torch
from conftest import SAVES, Watched, attach, logged, rows, same_weights, weights

import budgetalloc as ba
from budgetalloc.contrib.lengths import LengthCap, LengthSchedule
from budgetalloc.errors import InputError, StateError, UnsupportedError

LONG = {"max_completion_length": 12}
ENDS = (11, 12)  # TRL takes a pad token for an end, too


def ended(completion_ids, **_):
    """1 where the rollout ended by itself."""
    return [float(ids[-1] in ENDS) for ids in completion_ids]


def observed(trainer):
    """The steps, the completions and the rewards of each generation, and the batches of the loss."""
    watched, score = Watched(trainer), trainer._calculate_rewards
    watched.made = []

    def recording(inputs, prompts, completions, ids):
        rewards = score(inputs, prompts, completions, ids)
        if trainer.model.training:
            watched.made.append((trainer.state.global_step, [list(each) for each in ids]))
        return rewards

    trainer._calculate_rewards = recording
    return watched


def run(trainer, *callbacks, policy=None, resume=None, **options):
    """Trains with these callbacks, and with an AdaptiveGRPOCallback if there is a policy."""
    if policy is not None:
        attach(trainer, policy, **options)
    for each in callbacks:
        trainer.add_callback(each)
    watched = observed(trainer)
    trainer.train(resume_from_checkpoint=resume and f"{trainer.args.output_dir}/checkpoint-{resume}")
    return watched


def same_batches(one, other):
    """Whether the loss got the same tensors, to the bit."""
    assert len(one.batches) == len(other.batches) > 0
    for a, b in zip(one.batches, other.batches, strict=True):
        assert a.keys() == b.keys()
        assert all(torch.equal(torch.as_tensor(a[name]), torch.as_tensor(b[name])) for name in a)


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        ((256, 0.7, 150), {0: 256, 149: 256, 150: 179, 300: 125, 450: 87}),  # the paper's main runs
        ((100, 0.29, 1), {1: 29, 2: 8, 3: 2, 4: 1, 500: 1}),  # 100 * 0.29 is 28.999999999999996
        ((4, 1, 10), {0: 4, 1000: 4}),
    ],
)
def test_the_limit_shrinks_by_stages(build, given, limits):
    schedule = LengthSchedule(build(max_completion_length=256), *given)
    assert {step: schedule.limit(step) for step in limits} == limits


@pytest.mark.parametrize("policy", [None, "uniform", "adaptive"])
def test_a_schedule_is_exact_at_every_step(build, policy):
    trainer = build(**LONG, max_steps=4)
    watched = run(trainer, LengthSchedule(trainer, 8, 0.5, 1), policy=policy)
    assert [(step, max(map(len, made))) for step, made in watched.made] == [(0, 8), (1, 4), (2, 2), (3, 1)]


def test_a_limit_cuts_what_trl_would_have_generated(build):
    """The first step's rollouts are the beginnings of those without a limit; the loss masks nothing else."""
    plain = run(build(**LONG, max_steps=1))
    trainer = build(**LONG, max_steps=1)
    short = run(trainer, LengthSchedule(trainer, 3, 1, 1))
    ((_, long),), ((_, cut),) = plain.made, short.made
    assert cut == [each[:3] for each in long]
    clipped = np.mean([each[-1] not in ENDS for each in cut])
    assert 0 < clipped < 1
    assert logged(trainer, "completions/clipped_ratio") == [pytest.approx(clipped)]
    assert sum(batch["completion_mask"].sum() for batch in short.batches) == sum(map(len, cut))


@pytest.mark.parametrize("config", [{}, {"loss_type": "dr_grpo"}, {"num_iterations": 2}])
def test_a_schedule_that_never_binds_changes_no_bit(build, config):
    plain = build(**LONG, **config)
    wanted = run(plain)
    trainer = build(**LONG, **config)  # building it seeds the draws
    same_batches(wanted, run(trainer, LengthSchedule(trainer, 12, 1.0, 2)))
    assert same_weights(weights(plain), weights(trainer))


def test_the_loss_divides_by_the_trainers_own_length(build):
    """As where TRL generates as short rollouts by itself: dr_grpo's loss is then a third of 12 / 4."""
    config = {"loss_type": "dr_grpo", "max_steps": 1, "learning_rate": 0.0}
    plain = build(max_completion_length=4, **config)
    wanted = run(plain)
    trainer = build(**LONG, **config)
    same_batches(wanted, run(trainer, LengthSchedule(trainer, 4, 1.0, 1)))
    norms = [logged(each, "grad_norm")[0] for each in (plain, trainer)]
    assert norms[0] == pytest.approx(norms[1] * 3, rel=1e-4)


def test_a_schedule_goes_on_after_a_resume(build):
    def run_to_4(resume=None, **config):
        trainer = build(**LONG, **config)
        return run(trainer, LengthSchedule(trainer, 8, 0.5, 1), resume=resume), weights(trainer)

    whole, wanted = run_to_4(**SAVES)
    resumed, found = run_to_4(resume=2)
    assert resumed.made == whole.made[2:]
    assert same_weights(found, wanted)


def test_evaluations_and_a_removed_schedule_are_not_limited(build):
    trainer = build(**LONG, max_steps=1, eval_dataset=rows(8))
    schedule = LengthSchedule(trainer, 1, 1.0, 1)
    run(trainer, schedule)
    assert trainer.evaluate()["eval_completions/max_length"] == 12
    trainer.remove_callback(schedule)
    trainer.train()
    assert logged(trainer, "completions/max_length")[-1] == 12


# --- a cap for each prompt


def with_cap(build, policy="uniform", resume=None, options=None, cap=None, **config):
    trainer = build(**{"max_completion_length": 12, **config})
    part = LengthCap(trainer, **(cap or {}))
    watched = run(trainer, policy=policy, resume=resume, parts=[part], **(options or {}))
    return trainer, part, watched


def step_of(session, lengths, success):
    """A step with these lengths and successes of the prompts "a" and "b"."""
    session.begin(["a", "a", "b", "b"], rollouts=4, group=2)
    session.observe(session.request(), success, lengths_R=lengths)
    return session.end().metrics


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, 25),  # 1.25 times the longest of 10 and 20
        ({"of": 0.5, "times": 2}, 30),
        ({"of": "mean", "times": 0.7}, 11),  # 10.5
        ({"of": 0, "times": 1}, 10),
        ({"keep": 1}, 25),  # the newest
        ({"times": 100}, 64),
    ],
)
def test_a_cap_is_what_the_successes_needed(build, given, wanted):
    trainer = build(max_completion_length=64)
    cap = LengthCap(trainer, **given)
    session = attach(trainer, "uniform", parts=[cap], candidates=1).session
    assert cap.caps(["a", "b"]).tolist() == [64, 64]
    metrics = step_of(session, [10, 20, 64, 30], [1, 1, 0, 0])
    assert cap.caps(["b", "a", "b"]).tolist() == [64, wanted, 64]
    assert (metrics["lengths/cap"], metrics["lengths/cut"]) == (64, 0.25)


def test_a_cap_is_lifted_only_where_it_cut_and_nothing_succeeded(build):
    trainer = build(max_completion_length=64)
    cap = LengthCap(trainer, times=2)
    session = attach(trainer, "uniform", parts=[cap]).session
    step_of(session, [10, 10, 5, 5], [1, 1, 1, 1])
    assert cap.caps(["a", "b"]).tolist() == [20, 10]
    step_of(session, [20, 7, 9, 10], [0, 1, 0, 0])  # a: cut, with a success; b: cut, without
    assert cap.caps(["a", "b"]).tolist() == [20, 64]
    step_of(session, [19, 3, 8, 8], [0, 0, 1, 0])  # a: failed by itself
    assert cap.caps(["a", "b"]).tolist() == [20, 16]


@pytest.mark.parametrize("policy", ["uniform", "adaptive", "ar3po"])
def test_every_rollout_keeps_its_prompts_cap(build, policy):
    """The caps at the time of each generation are followed by hand."""
    trainer = build(rows(4), ended, **LONG, max_steps=6)
    cap, seen = LengthCap(trainer, of=0.5, times=1), []
    callback = attach(trainer, policy, parts=[cap])
    generate, learn = trainer._generate_and_score_completions, cap.learn

    def recording(inputs):
        ids = callback.prompts.ids(inputs)
        seen.append((ids, cap.caps(ids)))
        return generate(inputs)

    def checking(rollouts, step):
        caps = dict(zip([x for ids, _ in seen for x in ids], np.concatenate([c for _, c in seen]), strict=True))
        wanted_R = [caps[x] for x in rollouts.ids_R]
        assert (rollouts.lengths_R <= wanted_R).all()
        reached.append(((rollouts.lengths_R == wanted_R) & (np.array(wanted_R) < 12)).sum())
        seen.clear()
        return learn(rollouts, step)

    reached: list[int] = []
    trainer._generate_and_score_completions, cap.learn = recording, checking
    trainer.train()
    assert len(reached) == 6
    assert sum(reached) > 5


def test_rollouts_are_the_beginnings_of_those_without_a_cap(build):
    """Until the weights differ: TRL computes rewards, clipped ratios and masks of what is left."""
    config = {"max_steps": 3, "learning_rate": 0.0, "mask_truncated_completions": True}
    config |= {"dataset": rows(4), "reward": ended}
    _, _, plain = with_cap(build, cap={"times": 100}, **config)
    trainer, _, short = with_cap(build, cap={"of": 0.5, "times": 1}, **config)
    cut_at_all = 0
    for (_, long), (_, cut), batch in zip(plain.made, short.made, short.batches, strict=True):
        assert all(each == whole[: len(each)] for each, whole in zip(cut, long, strict=True))
        by_itself = [each[-1] in ENDS for each in cut]
        cut_at_all += sum(len(each) < len(whole) for each, whole in zip(cut, long, strict=True))
        kept = sorted(len(each) if end else 0 for each, end in zip(cut, by_itself, strict=True))
        assert sorted(batch["completion_mask"].sum(dim=1).tolist()) == kept
    assert cut_at_all > 5
    ratios = [np.mean([each[-1] not in ENDS for each in cut]) for _, cut in short.made]
    assert logged(trainer, "completions/clipped_ratio") == pytest.approx(ratios)


def test_caps_that_never_bind_change_no_bit_of_plain_trl(build):
    plain = build(**LONG)
    wanted = run(plain)
    trainer, _, watched = with_cap(build, cap={"times": 100})
    same_batches(wanted, watched)
    assert same_weights(weights(plain), weights(trainer))


def test_caps_survive_a_checkpoint(build):
    config = {"cap": {"of": 0.5, "times": 1}, "learning_rate": 1e-3, "policy": "adaptive", "reward": ended}
    whole, wanted, made = with_cap(build, **SAVES, **config)
    resumed, found, watched = with_cap(build, resume=2, **config)
    assert watched.made == made.made[2:]
    assert same_weights(weights(whole), weights(resumed))
    assert found.caps(range(24)).tolist() == wanted.caps(range(24)).tolist()
    assert len(set(wanted.caps(range(24)).tolist())) > 2


def test_a_schedule_limits_capped_prompts_too(build):
    trainer = build(**LONG)
    schedule, cap = LengthSchedule(trainer, 4, 0.5, 2), LengthCap(trainer)
    watched = run(trainer, schedule, policy="uniform", parts=[cap])
    assert [max(map(len, made)) for _, made in watched.made] == [4, 4, 2, 2]


def test_a_state_of_another_size_is_refused(build):
    trainer = build()
    cap = LengthCap(trainer)
    step_of(attach(trainer, "uniform", parts=[cap]).session, [1, 2, 3, 4], [1, 1, 1, 1])
    before = cap.caps(["a"]).tolist()
    with pytest.raises(StateError, match="lengths"):
        cap.load_state_dict(LengthCap(trainer, keep=3).state_dict() | {"length_caps": {"ids": ["a"], "lengths": [[1]]}})
    assert cap.caps(["a"]).tolist() == before
    cap.load_state_dict({})
    assert cap.caps(["a"]).tolist() == [4]


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda trainer: LengthSchedule(trainer, 5, 0.7, 150), "first=5"),
        (lambda trainer: LengthSchedule(trainer, 4, 0, 150), "factor=0"),
        (lambda trainer: LengthSchedule(trainer, 4, 1.1, 150), "factor=1.1"),
        (lambda trainer: LengthSchedule(trainer, 4, 0.7, 0), "every=0"),
        (lambda trainer: LengthSchedule(None, 4, 0.7, 1), "trainer"),
        (lambda trainer: LengthCap(trainer, of=1.5), "of=1.5"),
        (lambda trainer: LengthCap(trainer, of="median"), "of='median'"),
        (lambda trainer: LengthCap(trainer, times=0), "times=0"),
        (lambda trainer: LengthCap(trainer, keep=0), "keep=0"),
        (lambda trainer: LengthCap("trainer"), "trainer"),
    ],
)
def test_bad_arguments_are_named(build, make, named):
    with pytest.raises(InputError, match=named):
        make(build())


def test_what_would_not_hold_is_refused(build):
    with pytest.raises(InputError, match="max_new_tokens"):
        LengthCap(build(generation_kwargs={"max_new_tokens": 9}))
    with pytest.raises(UnsupportedError, match="no other loop"):
        ba.Session("uniform", ["reward"], parts=[LengthCap(build())])
    trainer = build()
    trainer.rollout_func = lambda prompts, trainer: {}
    attach(trainer, "uniform", parts=[LengthCap(trainer)])
    with pytest.raises(UnsupportedError, match="rollout_func"):
        trainer.train()

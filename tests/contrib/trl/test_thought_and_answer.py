"""Thought and answer with a budget each, in TRL's real trainer. "=" ends a thought."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SAVES, Watched, attach, behind_the_best, logged, recorded, rows, same_weights, weights

from budgetalloc.contrib.lengths import LengthSchedule
from budgetalloc.contrib.thought_and_answer import ThoughtAndAnswer
from budgetalloc.errors import InputError, UnsupportedError
from budgetalloc.trl import AdaptiveGRPOCallback

PAGE = Path(__file__).parents[3] / "docs/lengths.md"
END, ENDS = 10, (12,)  # "=", and the end of the text


def ends_with_answer(completion_ids, **_):
    """1 where the text ends by itself."""
    return [float(ids[-1] in ENDS) for ids in completion_ids]


def build_biased(build, bias=None, **config):
    """A trainer whose model has these numbers added to the logits of tokens."""
    trainer = build(**{"reward": ends_with_answer, "max_completion_length": 12, **config})
    if bias:
        added = torch.zeros(13)
        for token, value in bias.items():
            added[token] = value
        trainer.model.lm_head.bias = torch.nn.Parameter(added)
    return trainer


def batches_of(trainer):
    """The batches that the trainer trained on, before TRL shuffled their rows."""
    batches = recorded(trainer)
    trainer.train()
    return batches


def parts(batch):
    """Of each rollout: the thought with its end, whether that was forced, and the answer."""
    for ids, mask, own in zip(batch["completion_ids"], batch["completion_mask"], batch["tool_mask"], strict=True):
        tokens, own = ids[mask.bool()].tolist(), own[mask.bool()].tolist()
        until = tokens.index(END) + 1 if END in tokens else len(tokens)
        yield tokens[:until], own[:until], tokens[until:], own[until:]


@pytest.mark.parametrize("policy", [None, "uniform", "adaptive", "ar3po"])
def test_each_phase_keeps_its_budget(build, policy):
    trainer = build_biased(build, {12: 1.0}, max_steps=3)
    trainer.rollout_func = ThoughtAndAnswer(5, 3, end="=")
    if policy is not None:
        attach(trainer, policy)
    shares, cases = [], set()
    for batch in batches_of(trainer):
        forced = 0
        for thought, own, answer, answer_own in parts(batch):
            assert all(answer_own)
            assert all(own[:-1])
            if not own[-1]:  # the end was appended after a whole budget
                assert (len(thought), thought[-1]) == (6, END)
                forced += 1
            else:
                assert len(thought) <= 5
                assert thought[-1] in (END, *ENDS)
            assert len(answer) <= 3
            if thought[-1] == END:
                assert answer[-1] in ENDS or len(answer) == 3
            else:
                assert not answer
            cases.add((not own[-1], thought[-1] == END))
        shares.append(forced / 16)
    assert {(True, True), (False, True), (False, False)} <= cases
    if policy != "ar3po":  # whose step has several generations
        assert logged(trainer, "budgetalloc/thoughts/forced") == shares


def test_the_answer_goes_on_from_the_forced_end(build):
    """At this low temperature each token of the model is the most probable one, as computed without a cache."""
    uneven = rows().map(lambda row: {"prompt": row["prompt"] * (1 + row["prompt_id"] % 3)})
    trainer = build_biased(build, dataset=uneven, temperature=1e-4, max_steps=2, learning_rate=0)
    trainer.rollout_func = ThoughtAndAnswer(4, 6, end="=")
    appended = 0
    for batch in batches_of(trainer):
        behind = behind_the_best(trainer, batch)
        own = batch["completion_mask"] * batch["tool_mask"]
        assert (behind * own).max() < 1e-2
        appended += int((behind * (batch["completion_mask"] - own) > 1).sum())
        assert int(batch["num_items_in_batch"]) == int(own.sum())
    assert appended > 5


def test_the_loss_has_the_gradient_of_what_the_model_wrote(build):
    trainer = build_biased(build, {12: 1.0}, max_steps=1, loss_type="dr_grpo", scale_rewards="none")
    trainer.rollout_func = ThoughtAndAnswer(5, 3, end="=")
    (batch,) = batches_of(trainer)
    success = [float(row[mask.bool()][-1] in ENDS) for row, mask in zip(*by_row(batch), strict=True)]
    groups = np.reshape(success, (4, 4))
    advantages = (groups - groups.mean(axis=1, keepdims=True)).ravel()
    np.testing.assert_allclose(batch["advantages"], advantages, atol=1e-6)
    inputs = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    width = batch["completion_ids"].size(1)
    logps, _, _ = trainer._get_per_token_logps_and_entropies(trainer.model, inputs, mask, width)
    total = torch.zeros(())
    for row, (thought, own, answer, _) in enumerate(parts(batch)):
        written = [*own, *[1] * len(answer)]
        for at in np.flatnonzero(written).tolist():
            total = total + advantages[row] * logps[row, at]
        assert thought
    parameters = list(trainer.model.parameters())
    wanted = torch.autograd.grad(-total / (16 * 12), parameters)
    found = torch.autograd.grad(trainer._compute_loss(trainer.model, batch), parameters)
    assert max(each.abs().max() for each in wanted) > 1e-3
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-3)


def by_row(batch):
    return batch["completion_ids"], batch["completion_mask"]


@pytest.mark.parametrize("policy", [None, "adaptive"])
def test_budgets_that_never_bind_change_no_bit(build, policy):
    """All texts end within the thought's budget."""

    def run(function):
        trainer = build_biased(build, {12: 6.0, 10: -9.0}, max_completion_length=16, max_steps=3)
        trainer.rollout_func = function
        if policy is not None:
            attach(trainer, policy)
        watched = Watched(trainer)
        trainer.train()
        return watched.batches, weights(trainer)

    (plain, wanted), (own, found) = run(None), run(ThoughtAndAnswer(12, 3, end="="))
    assert max(batch["completion_ids"].size(1) for batch in plain) > 2
    for one, other in zip(plain, own, strict=True):
        assert other.keys() == one.keys() | {"tool_mask"}
        assert other["tool_mask"].all()
        assert all(torch.equal(torch.as_tensor(one[name]), torch.as_tensor(other[name])) for name in one)
    assert same_weights(found, wanted)


def test_a_schedule_shortens_thoughts_only(build):
    trainer = build_biased(build, {12: -3.0}, max_steps=3)
    trainer.rollout_func = ThoughtAndAnswer(8, 3, end="=")
    trainer.add_callback(LengthSchedule(trainer, 12, 0.5, 1))  # 12, 6, 3: room for 8 and for 2, then for no thought
    with pytest.raises(InputError, match=r"max_completion_length=3: holds no thought .* at least 12"):
        batches_of(trainer)
    assert trainer.state.global_step == 2
    longest = logged(trainer, "completions/max_length")
    assert longest == [11, 5]  # without the appended end


def test_a_resumed_run_is_that_of_an_uninterrupted_one(build):
    def run(resume=None, **config):
        trainer = build_biased(build, max_steps=3, **config)
        trainer.rollout_func = ThoughtAndAnswer(5, 3, end="=")
        attach(trainer, "adaptive")
        trainer.train(resume_from_checkpoint=resume and f"{trainer.args.output_dir}/checkpoint-{resume}")
        return weights(trainer)

    assert same_weights(run(**SAVES), run(resume=2))


def test_evaluations_have_both_budgets(build):
    trainer = build_biased(build, {12: -9.0}, eval_dataset=rows(4), per_device_eval_batch_size=16)
    trainer.rollout_func = ThoughtAndAnswer(5, 3, end="=")
    assert trainer.evaluate()["eval_completions/max_length"] == 8


def test_the_end_of_a_thought_may_lie_within_tokens(tokenizer):
    """The decoded text has a space between the symbols of this tokenizer."""
    tokens = tokenizer("12=34=5")["input_ids"]
    found = {end: ThoughtAndAnswer(4, 4, end=end).thought_length(tokenizer, tokens) for end in ("=", "= 3", " 4 ", "6")}
    assert found == {"=": 3, "= 3": 4, " 4 ": 6, "6": None}


@pytest.mark.parametrize(
    ("given", "named"),
    [((0, 4), "thought=0"), ((4, 0), "answer=0"), ((4, 4, ""), "end"), ((4, 4, 5), "end=5")],
)
def test_bad_arguments_are_named(given, named):
    thought, answer, *end = given
    with pytest.raises(InputError, match=named):
        ThoughtAndAnswer(thought, answer, **({"end": end[0]} if end else {}))


def test_tools_are_refused(build):
    trainer = build()
    trainer.rollout_func, trainer.tools = ThoughtAndAnswer(2, 1, end="="), [len]
    with pytest.raises(UnsupportedError, match="without tools"):
        trainer._generate(["1="])


BLOCKS = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("block", "key"),
    [(0, "lengths/cap"), (1, "thoughts/forced"), (3, "thoughts/forced")],
    ids=["cap", "phases", "tree"],
)
def test_the_page_runs_as_it_stands(build, block, key):
    trainer = build_biased(build, {12: 6.0}, max_completion_length=256, max_steps=1)
    exec(BLOCKS[block], {"trainer": trainer, "AdaptiveGRPOCallback": AdaptiveGRPOCallback})
    trainer.train()
    assert len(logged(trainer, f"budgetalloc/{key}")) == 1


def test_rows_by_budget_have_groups_rewards_and_beliefs_by_budget(build):
    """The page's recipe for HBPO, with its equations 1 to 3 for alpha = 1e-4 and beta = 1."""

    def correct(completion_ids, **_):
        return [float(len(ids) % 2) for ids in completion_ids]

    page = {"correct": correct, "dataset": rows(6).remove_columns("prompt_id")}
    code = BLOCKS[2].replace("(512, 1024, 2048, 2560), 4096", "(2, 4, 6, 8), 12")
    # the test's tokenizer has no letters
    exec(code.replace("{text} I will answer within {most} tokens.", "{most}{text}"), page)
    given = {"dataset": page["dataset"], "reward": [page["within_budget"], correct], "reward_weights": [1.0, 0.0]}
    trainer = build_biased(build, {12: 1.0}, **given)
    callback = attach(trainer, "uniform", success="correct")
    batch = batches_of(trainer)[0]
    rewards = []
    for ids, mask, prompt in zip(*by_row(batch), batch["prompt_ids"], strict=True):
        n, most = int(mask.sum()), int(trainer.processing_class.decode(prompt, skip_special_tokens=True)[0])
        within, beyond = np.cos(np.pi * most / 24), np.cos(np.pi * n / 24) - 1e-4 * abs(n - most)
        rewards.append((within if n <= most else beyond) * correct([ids[:n]])[0])
    groups = np.reshape(rewards, (4, 4))
    assert (groups.std(axis=1) > 0).any()
    advantages = (groups - groups.mean(axis=1, keepdims=True)) / (groups.std(axis=1, ddof=1, keepdims=True) + 1e-4)
    np.testing.assert_allclose(batch["advantages"], advantages.ravel(), atol=1e-5)
    assert len(callback.prompts.pool) == 6 * 4
    assert set(callback.batch.success_R) == {0.0, 1.0}

"""Real GRPO steps on the shipped weights are reproducible, do not depend on the evaluation, and learn."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl")
import numpy as np
import torch
from transformers import TrainerCallback
from trl import GRPOTrainer

import budgetalloc as ba
from budgetalloc.cli.testbed.curve import Recorder
from budgetalloc.cli.testbed.heldout import answer_logits, evaluate, probability, sample
from budgetalloc.cli.testbed.metrics import of_baselines, pass_at
from budgetalloc.cli.testbed.skills import WEIGHTS, answer, held_out, make_reward, prompt_id, skill_of
from budgetalloc.cli.testbed.train import Run, train
from budgetalloc.policies.advantages import posterior_mean
from budgetalloc.trl import AdaptiveGRPOCallback

SMALL: dict[str, Any] = {"steps": 4, "prompts": 8, "generations": 4, "held_out_per_skill": 2, "progress": False}


def timeless(run: Run) -> list[Any]:
    return [replace(point, seconds=0.0) for point in run.curve]


@pytest.fixture(scope="module")
def reference() -> Run:
    return train(seed=1, eval_every=2, **SMALL)


@pytest.fixture(scope="module")
def loaded() -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoModelForCausalLM.from_pretrained(WEIGHTS), AutoTokenizer.from_pretrained(WEIGHTS)


def test_the_seed_fixes_curve_and_losses(reference: Run) -> None:
    again = train(seed=1, eval_every=2, **SMALL)
    assert timeless(again) == timeless(reference)
    assert again.losses == reference.losses
    assert train(seed=2, eval_every=2, **SMALL).losses != reference.losses


def test_measuring_does_not_disturb_the_run(reference: Run) -> None:
    often = train(seed=1, eval_every=1, eval_samples=7, **SMALL)
    rarely = train(seed=1, eval_every=4, **SMALL)
    assert len(often.curve) == 5
    assert len(rarely.curve) == 2
    assert often.losses == rarely.losses == reference.losses
    assert any(loss != 0 for loss in reference.losses)
    for a, b in zip(often.trainer.model.parameters(), rarely.trainer.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert rarely.curve[-1].expected == often.curve[-1].expected


def test_the_curve_counts_what_was_generated(reference: Run) -> None:
    assert [point.step for point in reference.curve] == [0, 2, 4]
    assert [point.rollouts for point in reference.curve] == [0, 64, 128]
    logged = [entry for entry in reference.trainer.state.log_history if "completions/mean_length" in entry]
    tokens = sum(entry["completions/mean_length"] * 32 for entry in logged)
    assert reference.curve[-1].tokens == pytest.approx(tokens)
    uniform = [entry["frac_reward_zero_std"] for entry in logged]  # TRL's own count; equal groups, so they must agree
    assert reference.curve[1].mixed_groups == pytest.approx(1 - sum(uniform[:2]) / 2)
    assert reference.curve[2].mixed_rollouts == pytest.approx(1 - sum(uniform[2:]) / 2)
    assert reference.curve[0].mixed_groups is None


def test_mixed_shares_of_uneven_groups() -> None:
    recorder = Recorder(held_out(1), eval_every=1, samples=1, progress=False)
    reward = recorder.watch(make_reward())
    # The rows of a group need not be neighbours.
    ids = [
        prompt_id(f"{prompt}=") for prompt in ["a1234", "b1234", "c4321", "a1234", "b1234", "c4321", "a1234", "a1234"]
    ]
    texts = ["1234", "4321", "0000", "1234", "4321", "0000", "1234", "0000"]
    state = SimpleNamespace(global_step=0)
    values = reward(completions=texts, prompt_id=ids, completion_ids=[[0] * 5] * 8, trainer_state=state)
    assert values == [1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0]
    assert recorder.mixed() == (pytest.approx(1 / 3), pytest.approx(4 / 8))


@pytest.mark.parametrize("policy", [ba.uniform(seed=1), ba.adaptive(seed=1)], ids=str)
def test_baselines_are_compared_with_the_model_that_answered(policy: ba.Policy, loaded: tuple[Any, Any]) -> None:
    """The rollouts of the first step come from the shipped model, whose probabilities are known."""
    model, tokenizer = loaded
    callbacks: list[AdaptiveGRPOCallback] = []

    def attach(trainer: Any) -> None:
        callbacks.append(AdaptiveGRPOCallback(trainer, policy))
        trainer.add_callback(callbacks[0])

    run = train(attach, seed=1, eval_every=1, **{**SMALL, "steps": 1})
    batch = callbacks[0].batch
    assert batch is not None
    assert [point.baseline_error is None for point in run.curve] == [True, False]
    prompts_R = [f"{skill_of(i).letter}{i % 10_000:04d}=" for i in batch.ids_R]
    at = [n for n, i in enumerate(batch.ids_R) if not skill_of(i).is_trap]
    right_R = probability(model, tokenizer, [prompts_R[n] for n in at], [answer(prompts_R[n]) for n in at])
    sums_R = np.array([batch.rewards_R[batch.group_R == group].sum() for group in batch.group_R])
    uniform = policy.name.startswith("uniform")
    posterior_R = posterior_mean(batch.rewards_R, batch.group_R, batch.baseline_R)
    means_R = sums_R / batch.counts_R if uniform else posterior_R
    error, explained = of_baselines(means_R[at], right_R)
    assert run.curve[1].baseline_error == pytest.approx(error, abs=1e-5)
    assert run.curve[1].explained == pytest.approx(explained, abs=1e-4)


def test_without_a_policy_baselines_are_unknown_and_probabilities_are_kept(reference: Run) -> None:
    assert all(point.baseline_error is None and point.explained is None for point in reference.curve)
    for point, right_P in ((reference.curve[0], reference.start_P), (reference.curve[-1], reference.end_P)):
        assert len(right_P) == 48
        assert point.expected == pytest.approx(sum(right_P) / 48)
        assert point.pass8 == pass_at(right_P, 8)
        assert point.expected < point.pass8 < point.pass64 < 1
    assert reference.start_P != reference.end_P


def test_attach_gets_the_trainer_and_its_callback_runs() -> None:
    seen: list[Any] = []

    class Counting(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            seen.append(state.global_step)

    def attach(trainer: Any) -> None:
        assert isinstance(trainer, GRPOTrainer)
        trainer.add_callback(Counting())

    train(attach, seed=1, eval_every=4, **SMALL)
    assert seen == [1, 2, 3, 4]


def test_evaluation_changes_neither_mode_nor_random_state(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    model.train()
    before = torch.get_rng_state()
    first = evaluate(model, tokenizer, held_out(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
    assert evaluate(model, tokenizer, held_out(2)) == first
    assert evaluate(model, tokenizer, held_out(2), seed=1) != first


def test_sampled_success_agrees_with_the_probability_of_the_answer(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    prompts = [row["prompt"] for row in held_out(2) if not skill_of(row["prompt_id"]).is_trap]
    expected = probability(model, tokenizer, prompts, [answer(text) for text in prompts])
    for text, p in zip(prompts, expected, strict=True):
        drawn = sample(model, tokenizer, [text] * 400, seed=3)
        share = sum(completion == answer(text) for completion in drawn) / 400
        assert share == pytest.approx(p, abs=4.5 * (max(p * (1 - p), 1e-3) / 400) ** 0.5)


def test_entropy_is_that_of_the_tokens_up_to_the_end(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    rows = held_out(2)
    prompts = [row["prompt"] for row in rows]
    drawn = sample(model, tokenizer, prompts, seed=5)
    with torch.no_grad():
        logits_RTV, tokens_RT = answer_logits(model, tokenizer, prompts, drawn)
    entropy_RT = torch.distributions.Categorical(logits=logits_RTV).entropy()
    expected = entropy_RT[tokens_RT != -100].mean().item()
    assert evaluate(model, tokenizer, rows, samples=1, seed=5).entropy == pytest.approx(expected, abs=1e-4)


def test_the_shipped_model_leaves_room_to_learn(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    assert model.dtype == torch.float32  # as GRPO on a CPU needs it, whatever the file holds
    evaluation = evaluate(model, tokenizer, held_out())
    assert 0.4 < evaluation.expected < 0.5
    assert evaluation.skills == pytest.approx(evaluation.expected, abs=0.03)
    assert 0.1 < evaluation.traps < 0.28


@pytest.mark.slow
def test_plain_grpo_learns_on_prompts_it_never_saw() -> None:
    run = train(seed=0, learning_rate=3e-4, steps=90, eval_every=10, eval_samples=1, threads=1, progress=False)
    assert run.curve[-1].expected > run.curve[0].expected + 0.15
    first, last = run.curve[1].mixed_groups, run.curve[-1].mixed_groups
    assert first is not None
    assert last is not None
    assert first > 0.45  # about half of the groups are mixed at first
    assert last < 0.4


def test_errors_name_the_argument() -> None:
    with pytest.raises(ValueError, match="eval_every=0"):
        train(eval_every=0)
    with pytest.raises(FileNotFoundError, match=r"benchmarks/learning/pretrain\.py --out nowhere"):
        train(weights="nowhere")


def test_max_rollouts_ends_a_run_whose_policy_generates_more_than_it_trains_on() -> None:
    def attach(trainer: Any) -> None:
        trainer.add_callback(AdaptiveGRPOCallback(trainer, ba.methods.dapo(group=4, generate=3)))

    run = train(attach, max_rollouts=150, eval_every=1, eval_samples=1, **SMALL | {"steps": 6})
    rollouts = [point.rollouts for point in run.curve]
    assert rollouts[-2] < 150 <= rollouts[-1]
    assert len(rollouts) < 6  # a step trains on 32 rows and generates more

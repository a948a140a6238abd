"""Rows, counts and advantages belong together under every configuration of the trainer."""

import itertools
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from conftest import SYMBOLS, trained, weights
from transformers import LlamaForCausalLM
from trl import GRPOTrainer

import budgetalloc as ba
from budgetalloc.policies import Needs


@dataclass
class Generated:
    """One generation of TRL: its rows, what each became, and the batches that the loss received."""

    rows: list[dict]
    prompt_ids: list[list[int]] = field(default_factory=list)
    completion_ids: list[list[int]] = field(default_factory=list)
    rewards_RF: np.ndarray | None = None
    scored: list[dict] = field(default_factory=list)
    learned: list[dict] = field(default_factory=list)


def even_sum(prompts, completions, **_):
    """1 where the prompt's number plus the index of the completion's first symbol is even.

    The reward depends on the prompt, so a reward in the wrong row is noticed.
    """
    return [
        float((int(prompt[:3]) + SYMBOLS.index(text[0] if text else "=")) % 2 == 0)
        for prompt, text in zip(prompts, completions, strict=True)
    ]


def uneven(seed=1):
    """Gives 5, 2, 3, 6, 5, ... rollouts to prompts drawn from the whole dataset."""

    def decide(view):
        counts_P, left = np.zeros(len(view.belief_P), dtype=np.int64), view.budget.rollouts
        for at, size in zip(view.rng.permutation(len(counts_P)), itertools.cycle([5, 2, 3, 6])):
            counts_P[at] = left if left - size < 2 else size
            left -= counts_P[at]
        return counts_P

    return ba.Policy("uneven", decide, ba.BetaEstimator(), seed, Needs(candidates="all", baseline="group"))


def rebuilt(trainer, cls=GRPOTrainer, **more):
    """The same trainer as another class, or with other arguments, from the same weights."""
    given = {
        "model": LlamaForCausalLM.from_pretrained(trainer.model.config._name_or_path),
        "reward_funcs": trainer.reward_funcs,
        "args": trainer.args,
        "train_dataset": trainer.train_dataset,
        "processing_class": trainer.processing_class,
    }
    return cls(**{**given, **more})


def train(trainer, policy=None, **attach):
    """Trains with a policy; returns the callback and a `Generated` for each generation."""
    made = []
    own_step, own_generate = trainer._generate_and_score_completions, trainer._generate
    own_rewards, own_loss = trainer._calculate_rewards, trainer._compute_loss

    def generate_and_score(rows):
        if trainer.model.training:
            made.append(Generated([dict(row) for row in rows]))
        return own_step(rows)

    def generate(prompts):
        output = own_generate(prompts)
        made[-1].prompt_ids, made[-1].completion_ids = output[0], output[1]
        return output

    def calculate_rewards(rows, *more):
        rewards = own_rewards(rows, *more)
        made[-1].scored, made[-1].rewards_RF = list(rows), rewards.double().numpy()
        return rewards

    def compute_loss(model, batch):
        made[-1].learned.append(batch)
        return own_loss(model, batch)

    trainer._generate_and_score_completions = generate_and_score
    trainer._generate, trainer._calculate_rewards, trainer._compute_loss = generate, calculate_rewards, compute_loss
    return trained(trainer, policy or uneven(), **attach), made


def content(prompt, completion, pad):
    """Identifies a trained row: its tokens without padding."""
    ids = list(completion)
    while ids and ids[-1] == pad:
        ids.pop()
    return tuple(prompt), tuple(ids)


def learned_rows(batch, pad):
    """For each row that the loss received: its content, and its index in the batch."""
    for at, (prompt, mask) in enumerate(zip(batch["prompt_ids"], batch["prompt_mask"], strict=True)):
        yield content(prompt[mask.bool()].tolist(), batch["completion_ids"][at].tolist(), pad), at


def total(trainer, each):
    """The weighted sum of the rewards; NaN where no function gave one."""
    weighted = each.rewards_RF * trainer.reward_weights.double().numpy()
    return np.where(np.isnan(weighted).all(axis=1), np.nan, np.nansum(weighted, axis=1))


def assert_doubted(trainer, made):
    """What a subclass makes of `even_sum` is learned from, and what it adds to a batch of 16 rows stays with them."""
    for each in made:
        texts = trainer.processing_class.batch_decode(each.completion_ids, skip_special_tokens=True)
        paid = even_sum([row["prompt"] for row in each.rows], texts)
        assert each.rewards_RF[:, 0].tolist() == [1 - reward for reward in paid]
        assert sorted(torch.cat([batch["seen"] for batch in each.learned]).tolist()) == list(range(16))


def assert_in_place(trainer, callback, made, name="prompt_id"):
    """Checks that every trained row has the advantage of its own reward among those of its own prompt."""
    options, pad = callback.options, trainer._tokenizer.pad_token_id
    some = False
    for each in made:
        names = [row[name] for row in each.rows]
        assert names == [row[name] for row in each.scored]
        assert len(set(Counter(names).values())) > 1
        advantages = ba.group_advantages(total(trainer, each), names, options.baseline, options.scale, options.weight)
        keys = [content(p, c, pad) for p, c in zip(each.prompt_ids, each.completion_ids, strict=True)]
        some |= advantages.any()
        expected = dict(zip(keys, advantages, strict=True))
        times = Counter()
        for batch in each.learned:
            for key, at in learned_rows(batch, pad):
                assert float(batch["advantages"][at]) == pytest.approx(expected[key], abs=1e-4)
                times[key] += 1
        # Each row is learned from once an iteration; the last generation of a run may be cut off.
        every = Counter({key: n * trainer.num_iterations for key, n in Counter(keys).items()})
        assert times == every if each is not made[-1] else times <= every
    assert some  # otherwise all rows would look alike


@pytest.mark.parametrize(
    ("accumulation", "per_generation", "iterations"), [(1, 3, 2), (2, 1, 1), (2, 2, 2), (2, 3, 1), (3, 2, 2)]
)
def test_accumulation_and_reuse(build, accumulation, per_generation, iterations):
    """Also if a generation spans several optimizer steps, or an optimizer step several generations."""
    per = per_generation * iterations
    trainer = build(
        reward=even_sum,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=accumulation,
        steps_per_generation=per_generation,
        num_iterations=iterations,
        max_steps=-(-(per + 1) // accumulation),
    )
    callback, made = train(trainer, baseline="loo", scale="none", weight="prompt")
    assert_in_place(trainer, callback, made)
    assert len(made) == -(-trainer.state.global_step * accumulation // per)
    assert [len(each.rows) for each in made] == [8 * per_generation] * len(made)
    for each in made:  # TRL's token losses divide by the tokens of the whole generation
        tokens = sum(len(ids) for ids in each.completion_ids)
        assert {int(batch["num_items_in_batch"]) for batch in each.learned} == {tokens}


def log_probabilities(model, batch):
    """The log-probability of each completion token, from a separate forward pass."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1].float()
    every = torch.log_softmax(logits, dim=-1).gather(-1, ids[:, 1:, None])[..., 0]
    return every[:, -batch["completion_ids"].shape[1] :] * batch["completion_mask"]


@pytest.mark.parametrize("policy", [uneven, ba.methods.reinforce_ada])
def test_a_reference_model_scores_the_rows_that_are_trained_on(build, model_folder, policy):
    """Also after rounds are merged."""
    trainer = build(
        reward=even_sum, beta=0.1, num_iterations=2, steps_per_generation=2, per_device_train_batch_size=8, max_steps=8
    )
    _, made = train(trainer, policy(seed=1))
    reference = LlamaForCausalLM.from_pretrained(model_folder)
    batches = [batch for each in made for batch in each.learned]
    assert len(batches) == 8
    for batch in batches:
        own = log_probabilities(reference, batch)
        mask = batch["completion_mask"]
        torch.testing.assert_close(batch["ref_per_token_logps"] * mask, own, atol=1e-4, rtol=1e-4)
    assert any((batch["old_per_token_logps"] - batch["ref_per_token_logps"]).abs().max() > 1e-3 for batch in batches)


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_lora_changes_only_the_adapters(build, model_folder, beta):
    peft = pytest.importorskip("peft", reason="LoRA needs peft")
    lora = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    trainer = rebuilt(build(reward=even_sum, beta=beta, max_steps=3), peft_config=lora)
    before = weights(trainer)
    callback, made = train(trainer)
    assert_in_place(trainer, callback, made)
    moved = {name for name, weight in trainer.model.named_parameters() if not weight.equal(before[name])}
    assert moved == {name for name in before if "lora_" in name}
    if beta:  # the reference is the model without its adapters
        reference = LlamaForCausalLM.from_pretrained(model_folder)
        for batch in made[-1].learned:
            own = log_probabilities(reference, batch)
            kept = batch["ref_per_token_logps"] * batch["completion_mask"]
            torch.testing.assert_close(kept, own, atol=1e-4, rtol=1e-4)


def test_padding_to_a_multiple(build):
    trainer = build(reward=even_sum, pad_to_multiple_of=8, max_steps=2)
    callback, made = train(trainer)
    assert_in_place(trainer, callback, made)
    assert made[0].learned[0]["completion_ids"].shape[1] == 8

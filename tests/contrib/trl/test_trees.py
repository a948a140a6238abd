"""Rollouts that branch, in TRL's real trainer."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import SAVES, attach, behind_the_best, logged, recorded, rows, same_weights, weights
from transformers import TrainerCallback

import budgetalloc as ba
from budgetalloc import policies
from budgetalloc.contrib.stored_responses import CorrectResponseBuffer
from budgetalloc.contrib.thought_and_answer import ThoughtAndAnswer
from budgetalloc.contrib.trees import Trees
from budgetalloc.contrib.truncated_thoughts import TruncatedThoughts
from budgetalloc.errors import InputError, UnsupportedError


def with_trees(build, trees, policy=None, dataset=None, **config):
    """A trainer with trees and a policy, and the batches that it will train on, before TRL shuffles their rows."""
    trainer = build(dataset, **{"max_completion_length": 12, "scale_rewards": "none", **config})
    trainer.rollout_func = trees
    callback = attach(trainer, policy or ba.uniform())
    return trainer, callback, recorded(trainer)


def test_a_branch_goes_on_from_the_tokens_of_its_parent(build):
    """At this low temperature each token is the most probable one, as computed without a cache."""
    uneven = rows().map(lambda row: {"prompt": row["prompt"] * (1 + row["prompt_id"] % 3)})
    trainer, _, batches = with_trees(build, Trees(1), dataset=uneven, temperature=1e-4, max_steps=2, learning_rate=0)
    trainer.train()
    for batch in batches:
        behind = behind_the_best(trainer, batch)
        assert (behind * batch["completion_mask"]).max() < 1e-2
        assert len(set(batch["prompt_mask"].sum(dim=1).tolist())) > 1


@pytest.mark.parametrize("policy", ["uniform", "thompson"])
@pytest.mark.parametrize(
    "trees", [Trees([2, 3, 5], seed=3), TruncatedThoughts([2, 4], 3, end="=", roots=0.5)], ids=["trees", "thoughts"]
)
def test_the_loss_of_the_trainer_has_the_gradient_of_each_branch_once(build, trees, policy):
    """TRL's dr_grpo loss sums over tokens: each branch counts once, with its weight and its advantage."""
    trainer, callback, batches = with_trees(build, trees, policy, loss_type="dr_grpo", max_steps=1)
    trainer.train()
    (batch,) = batches
    branch_RT = trees.branches(batch["completion_ids"].size(1))["branch_ids"].numpy()
    own_RT = batch.get("tool_mask", batch["completion_mask"]).numpy() > 0
    paths = [list(dict.fromkeys(row[row >= 0].tolist())) for row in branch_RT]
    weights_R, group_R = np.array([leaf.weight for leaf in trees._leaves]), callback.batch.group_R
    assert len({branch for path in paths for branch in path}) > 16  # some branched

    def value(branch):
        leaves = [row for row, path in enumerate(paths) if branch in path]
        return np.average(callback.batch.rewards_R[leaves], weights=weights_R[leaves])

    def others(row, depth):
        near = [p for p, g in zip(paths, group_R, strict=True) if g == group_R[row] and p[:depth] == paths[row][:depth]]
        found = {p[depth] for p in near if len(p) > depth} - {paths[row][depth]}
        return [x for x in found if x // 2**32 <= paths[row][depth] // 2**32]

    inputs = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    logps, _, _ = trainer._get_per_token_logps_and_entropies(trainer.model, inputs, mask, branch_RT.shape[1])
    total = torch.zeros(())
    for branch in {branch for path in paths for branch in path}:
        leaves = [row for row, path in enumerate(paths) if branch in path]
        depth = paths[leaves[0]].index(branch)
        means = [[value(x) for x in others(leaves[0], at)] for at in range(depth + 1)]
        if baselines := [np.mean(each) for each in means if each]:
            advantage = (value(branch) - np.mean(baselines)) * weights_R[leaves].sum()
            written = torch.as_tensor((branch_RT[leaves[0]] == branch) & own_RT[leaves[0]])
            total = total + advantage * logps[leaves[0], written].sum()
    parameters = list(trainer.model.parameters())
    wanted = torch.autograd.grad(-total / (16 * 12), parameters)
    found = torch.autograd.grad(trainer._compute_loss(trainer.model, batch), parameters)
    assert max(each.abs().max() for each in wanted) > 1e-3
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-3)


def prefixes(prompts, completions):
    return {tuple(p + c[: at + 1]) for p, c in zip(prompts, completions, strict=True) for at in range(len(c))}


@pytest.mark.parametrize(("policy", "roots"), [("ar3po", 0.25), ("adaptive", {0: 1.0, 1: 0.25})])
def test_budgets_are_exact_and_shared_tokens_count_once(build, ledger, policy, roots):
    """Also of a policy in rounds, and of groups of one or two."""
    trainer, generated = build(max_completion_length=12, max_steps=3), []
    trainer.rollout_func, generate = Trees(2, roots=roots), trainer._generate

    def recording(prompts):
        output = generate(prompts)
        generated.append((output[0], output[1], output[5]["generated_tokens"]))
        return output

    trainer._generate = recording
    attach(trainer, policy, ledger=ledger, min_group=4 if policy == "adaptive" else None)
    trainer.train()
    log = ba.Ledger.read(ledger)
    assert np.bincount(log.frame.step.to_numpy()).tolist() == [16] * 3
    fewer = 0
    for prompts, completions, shares in generated:
        alone = sum(map(len, completions))
        assert len(prefixes(prompts, completions)) - 1e-6 <= sum(shares) <= alone + 1e-6
        fewer += sum(shares) < alone - 0.5
    assert fewer >= 1
    assert log.frame.length.to_numpy().sum() == sum(
        len(each) for _, completions, _ in generated for each in completions
    )


@pytest.mark.parametrize("uniform", [False, True])
@pytest.mark.parametrize("scale", ["group", "none"])
def test_a_policy_that_does_not_divide_leaves_the_scale_to_the_trainer(build, scale, uniform):
    """Rewards ten times as large: TRL's "group" divides by their deviation, "none" does not."""
    trees = Trees(2)
    trainer, callback, _ = with_trees(build, trees, "adaptive", rows(40), scale_rewards=scale, max_steps=2)
    trainer.train()
    batch = replace(callback.batch, uniform=uniform)
    alone_R1, weights_R = np.arange(len(batch))[:, None], np.ones(len(batch))

    def size(factor):
        scored = replace(batch, rewards_R=batch.rewards_R * factor)
        return np.sqrt(np.mean(trees.advantages(scored, callback.options, alone_R1, weights_R) ** 2))

    assert 0.1 < size(1) < 2
    assert size(10) / size(1) == pytest.approx(1 if scale == "group" else 10, rel=0.3)


@pytest.mark.parametrize("uniform", [False, True])
def test_in_uniform_groups_the_scale_is_the_trainers(build, uniform):
    trees, policy = Trees(2), policies.sampled(groups=2)
    of_batch = replace(policy, needs=replace(policy.needs, scale="batch"))
    trainer, callback, _ = with_trees(build, trees, of_batch, rows(40), scale_rewards="group", max_steps=2)
    trainer.train()
    batch = replace(callback.batch, uniform=uniform)
    alone_R1, weights_R = np.arange(len(batch))[:, None], np.ones(len(batch))
    options = callback.options
    own, divided = (
        trees.advantages(batch, each, alone_R1, weights_R) for each in (options, replace(options, scale="group"))
    )
    assert options.scale == "batch"
    assert np.array_equal(own, divided) == uniform


def test_a_budget_in_generated_tokens(build):
    """Rollouts report their share of the tokens, which the callback takes as their cost."""
    trainer, callback, _ = with_trees(build, Trees(3), max_steps=2, dataset=rows(40))
    trainer.remove_callback(callback)
    callback = attach(trainer, "adaptive", min_group=4, cost={"generated_tokens": 1.0}, cost_per_step=150.0)
    spent = []

    class Spent(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            spent.append(callback.batch.costs_R.sum())

    trainer.add_callback(Spent())
    trainer.train()
    assert spent == pytest.approx(logged(trainer, "budgetalloc/trees/tokens"))


def test_evaluations_do_not_branch(build):
    trees, lengths = Trees(2), []
    trainer = build(max_completion_length=12, eval_dataset=rows(4), per_device_eval_batch_size=16, max_steps=1)
    trainer.rollout_func = trees
    attach(trainer, "uniform")
    generate = trainer._generate

    def recording(prompts):
        output = generate(prompts)
        lengths.append((sum(map(len, output[1])), sum(output[5]["generated_tokens"])))
        return output

    trainer._generate = recording
    trainer.train()
    trainer.evaluate()
    (_, in_training), *evaluations = lengths
    assert in_training < lengths[0][0]
    assert evaluations
    assert all(alone == generated for alone, generated in evaluations)


def test_a_run_that_fails_in_the_middle_of_a_tree_resumes_to_the_bit(build):
    def run(fails_at=None, resume=None, **config):
        trees = Trees(2)
        trainer, callback, batches = with_trees(build, trees, "thompson", max_steps=4, learning_rate=1e-3, **config)
        generate, calls = trainer._generate_single_turn, []

        def generating(*given, **named):
            calls.append(trainer.state.global_step)
            if calls.count(fails_at) == 2:  # after the first branches
                raise RuntimeError("the engine died")
            return generate(*given, **named)

        trainer._generate_single_turn = generating
        trainer.train(resume_from_checkpoint=resume and f"{trainer.args.output_dir}/checkpoint-{resume}")
        return callback, batches, weights(trainer)

    whole, batches, wanted = run()
    with pytest.raises(RuntimeError, match="the engine died"):
        run(fails_at=2, **SAVES)
    resumed, later, found = run(resume=2)
    assert [batch["completion_ids"].tolist() for batch in later] == [x["completion_ids"].tolist() for x in batches[2:]]
    assert same_weights(found, wanted)
    assert resumed.policy.estimator.step == whole.policy.estimator.step == 4
    one, other = (each.policy.belief(list(whole.prompts.pool)) for each in (resumed, whole))
    assert one.alpha_P.tolist() == other.alpha_P.tolist()  # nothing was counted twice
    assert one.beta_P.tolist() == other.beta_P.tolist()


@pytest.mark.parametrize("trees", [Trees(2), TruncatedThoughts([2], 2, end="=")])
def test_without_a_callback_trees_are_refused(build, trees):
    trainer = build()
    trainer.rollout_func = trees
    with pytest.raises(UnsupportedError, match="needs an AdaptiveGRPOCallback"):
        trainer.train()


@pytest.mark.parametrize(
    ("config", "options", "named"),
    [
        ({"mask_truncated_completions": True}, {}, "mask_truncated_completions"),
        ({}, {"baseline": "batch", "scale": "batch"}, "baseline='batch'"),
        ({}, {"policy": "reinforce_ada"}, "some leaves"),
        ({}, {"buffer": CorrectResponseBuffer()}, "buffer="),
        ({}, {"policy": ba.adaptive(), "scale": "maxrl"}, "scale='maxrl'"),
    ],
)
def test_what_would_get_wrong_advantages_is_refused(build, config, options, named):
    trainer = build(**config)
    trainer.rollout_func = Trees(2)
    with pytest.raises(UnsupportedError, match=named):
        attach(trainer, **options)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"points": 0}, "points"),
        ({"points": []}, "points"),
        ({"points": [4, 2]}, "points"),
        ({"points": 4, "roots": 0}, "roots"),
        ({"points": 4, "roots": 1.5}, "roots"),
        ({"points": 4, "roots": {1: 0.5}}, "step 0"),
        ({"points": 4, "roots": {0: 1.5}}, "roots=1.5"),
        ({"points": 4, "roots": {0: 0.5, 0.5: 1.0}}, "roots=0.5"),
    ],
)
def test_bad_arguments_are_named(given, named):
    with pytest.raises(InputError, match=named):
        Trees(**given)


@pytest.mark.parametrize("function", [Trees(2), TruncatedThoughts([2], 2), ThoughtAndAnswer(2, 2)])
def test_images_are_refused_by_name(build, function):
    trainer = build()
    trainer.rollout_func, trainer._tokenize_prompts = function, lambda prompts: ([[1]], [["a picture"]], {})
    trainer.model.eval()
    with pytest.raises(
        UnsupportedError, match=rf"rollout_func={type(function).__name__}\(\.\.\.\) works without images"
    ):
        trainer._generate(["1="])

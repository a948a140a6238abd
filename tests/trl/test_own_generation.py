"""Trainers whose own code generates: more than once a step, or by equal groups, or by a budget of its own."""

import pytest
import torch
from conftest import SAVES, attach, logged, low_digit, same_weights, trained, weights
from test_surface import rebuilt
from trl import GRPOTrainer

import budgetalloc as ba

WHOLE = GRPOTrainer._generate_and_score_completions


def mixed(trainer, output):
    return output["advantages"].view(-1, trainer.num_generations).abs().sum(1).gt(0)


class Resampling(GRPOTrainer):
    """Generates again while no group has a gradient."""

    def _generate_and_score_completions(self, inputs):
        for _ in range(30):
            output = super()._generate_and_score_completions(inputs)
            if output["advantages"].view(-1, self.num_generations).abs().sum(1).gt(0).any():
                break
        return output


class Helped(GRPOTrainer):
    """The same in helpers: a method and a function of the module."""

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        return output if self.enough(output) else super()._generate_and_score_completions(inputs)

    def enough(self, output):
        return mixed(self, output).any()


class Ranking(GRPOTrainer):
    """Rewards by rank in a group."""

    def _calculate_rewards(self, *given):
        rewards = super()._calculate_rewards(*given)
        return rewards.view(-1, self.num_generations).argsort(dim=1).view(-1, 1).float()


class Budgeted(GRPOTrainer):
    """Generates as it likes, for the first row of each group."""

    def _generate_single_turn(self, prompt_ids, *more, **named):
        size = getattr(self.args, "num_generations")  # noqa: B009
        heads = [ids for ids in prompt_ids[::size] for _ in range(size)]
        return super()._generate_single_turn(heads, *more, **named)


class Dropping(GRPOTrainer):
    """Takes another batch while too few groups have a gradient."""

    def _prepare_inputs(self, batch):
        if self.model.training and isinstance(batch, list):
            while not mixed(self, self._generate_and_score_completions(batch)).any():
                pass
        return super()._prepare_inputs(batch)


@pytest.mark.parametrize("cls", [Resampling, Helped, Ranking, Budgeted, Dropping])
def test_code_that_reads_equal_groups_while_generating_is_refused_when_attached(build, cls):
    trainer = rebuilt(build(max_steps=1), cls)
    for policy in (ba.adaptive(), ba.knapsack(), ba.methods.ar3po(group=4)):
        with pytest.raises(ba.UnsupportedError, match=rf"{cls.__name__}\._.* reads .*num_generations.*uniform\(\)"):
            attach(trainer, policy)
    attach(trainer, ba.uniform())
    trainer.train()


def test_a_wrapper_around_the_method_is_code_of_its_own(build):
    trainer = build(max_steps=1)
    callback, own = attach(trainer), trainer._generate_and_score_completions

    def resampled(inputs):
        output = own(inputs)
        return output if mixed(trainer, output).any() else own(inputs)

    trainer._generate_and_score_completions = resampled
    with pytest.raises(ba.UnsupportedError, match=r"the trainer\._generate_and_score_completions reads"):
        trainer.train()
    assert callback.policy.estimator.step == 0


class Twice(GRPOTrainer):
    """Generates twice, for reasons of its own; returns the batch `which`."""

    which = 1

    def _generate_and_score_completions(self, inputs):
        whole = super()._generate_and_score_completions
        return [whole(inputs), whole(inputs)][self.which]


class More(GRPOTrainer):
    """Makes two completions of each row, and trains on the longer one."""

    def _generate_single_turn(self, prompt_ids, *more, **named):
        made = [super(More, self)._generate_single_turn(prompt_ids, *more, **named)[0] for _ in range(2)]
        return [max(pair, key=len) for pair in zip(*made, strict=True)], None


class Halves(GRPOTrainer):
    """Trains on rows of two generations."""

    def _generate_and_score_completions(self, inputs):
        one, other = (super(Halves, self)._generate_and_score_completions(inputs) for _ in range(2))
        wide = min(one["completion_ids"].size(1), other["completion_ids"].size(1))
        made = {}
        for name in sorted(one.keys() - {"num_items_in_batch"}):
            pair = (one[name][:8], other[name][8:])
            if name.startswith("completion"):
                pair = tuple(part[:, :wide] for part in pair)
            made[name] = torch.cat(pair)
        return made | {"num_items_in_batch": one["num_items_in_batch"]}


class Doubling(GRPOTrainer):
    """Generates for twice as many rows, and trains on half of them."""

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions([*inputs, *inputs])
        half = {name: value[::2] for name, value in output.items() if value.dim()}
        return half | {"num_items_in_batch": half["completion_mask"].sum()}


class Exchanging(GRPOTrainer):
    """Trains on rows of other prompts."""

    def _generate_and_score_completions(self, inputs):
        return super()._generate_and_score_completions([{**row, "prompt": "11="} for row in inputs])


FIELD = "advantages"  # not written in the method


class Weighing(GRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        return {**output, FIELD: output[FIELD] + 0.5}


class Fewer(GRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        return {name: value if value.dim() == 0 else value[::2] for name, value in output.items()}


@pytest.mark.parametrize(
    ("cls", "what"),
    [
        (Twice, "generates 32 rollouts in place of 16"),
        (More, "generates 32 rollouts in place of 16"),
        (Halves, "generates 32 rollouts in place of 16"),
        (Doubling, "generates 32 rollouts in place of 16"),
        (Exchanging, "trains on other rows than it was given"),
        (Weighing, "computes advantages of its own"),
        (Fewer, "trains on other rows than it was given"),
    ],
)
def test_other_code_of_its_own_is_refused_in_the_first_step_and_changes_nothing(build, ledger, cls, what):
    scored = []

    def counting(completions, **_):
        scored.extend(completions)
        return low_digit(completions)

    trainer = rebuilt(build(reward=counting), cls)
    callback = attach(trainer, ledger=ledger)
    with pytest.raises(ba.UnsupportedError, match=f"{cls.__name__} {what}"):
        trainer.train()
    assert len(scored) <= 16
    assert callback.policy.estimator.step == 0
    assert not ledger.exists()


@pytest.mark.parametrize("which", [0, 1])
def test_uniform_records_the_batch_that_is_trained_on_and_counts_what_was_generated(build, ledger, which):
    cls = type("Twice", (Twice,), {"which": which})
    plain = rebuilt(build(), cls)
    plain.train()
    trainer, batches = rebuilt(build(), cls), []
    loss = trainer._compute_loss
    trainer._compute_loss = lambda model, inputs: batches.append(inputs) or loss(model, inputs)
    trained(trainer, ba.uniform(), ledger=ledger)
    assert same_weights(weights(plain), weights(trainer))
    assert logged(trainer, "budgetalloc/generated") == [32.0] * 4
    assert logged(trainer, "reward") == logged(plain, "reward")
    for (_, rows), batch in zip(ba.Ledger.read(ledger).frame.groupby("step"), batches, strict=True):
        texts = trainer.processing_class.batch_decode(batch["completion_ids"], skip_special_tokens=True)
        assert len(rows) == 16
        assert rows.reward.sum() == sum(low_digit(texts))


@pytest.mark.parametrize(("cls", "generated"), [(Halves, [32.0] * 4), (Doubling, [32.0] * 4), (Exchanging, [])])
def test_a_batch_made_otherwise_is_trained_on_under_uniform_and_not_recorded(build, ledger, caplog, cls, generated):
    plain = rebuilt(build(), cls)
    plain.train()
    trainer = rebuilt(build(), cls)
    callback = trained(trainer, ba.uniform(), ledger=ledger)
    assert same_weights(weights(plain), weights(trainer))
    assert logged(trainer, "budgetalloc/generated") == generated
    assert callback.policy.estimator.step == 0
    assert not ledger.exists()
    (warning,) = [text for text in caplog.messages if f"{cls.__name__} makes a batch otherwise" in text]  # once
    assert "neither observed nor in the ledger" in warning


class Choosing(GRPOTrainer):
    """Drops the first batch of every second step, by a rule that reads no groups."""

    def _prepare_inputs(self, batch):
        if self.state.global_step % 2 and self.model.training:
            self._generate_and_score_completions(batch)
        return super()._prepare_inputs(batch)


@pytest.mark.parametrize("make", [ba.adaptive, ba.uniform])
def test_a_dropped_batch_is_counted_and_learned_also_after_a_resume(build, ledger, make):
    trainer = rebuilt(build(**SAVES), Choosing)
    policy = trained(trainer, make(), ledger=ledger).policy
    assert logged(trainer, "budgetalloc/generated") == [32.0, 32.0]
    assert policy.estimator.step == 6
    frame = ba.Ledger.read(ledger).frame
    assert frame.groupby("step").size().tolist() == [16] * 6  # by decision
    whole = weights(trainer)
    again = rebuilt(build(**SAVES), Choosing)
    trained(again, make(), ledger=ledger, resume=3)
    assert same_weights(whole, weights(again))
    assert ba.Ledger.read(ledger).frame.equals(frame)


def test_rollouts_that_a_policy_does_not_train_on_are_counted(build):
    trainer = build(max_steps=2)
    callback = trained(trainer, ba.methods.reinforce_ada(group=4, more=4, stages=2, seed=1), candidates=1)
    rounds = logged(trainer, "budgetalloc/generated")
    assert rounds[-1] == len(callback.batch) > 16
    plain = build(max_steps=2)
    trained(plain)
    assert not logged(plain, "budgetalloc/generated")  # as many as are trained on


def test_code_that_reads_nothing_of_groups_is_followed(build):
    """A copy of TRL's method may read num_generations: groups of one are right for it."""
    seen = []

    class Logging(GRPOTrainer):
        def _calculate_rewards(self, *given):
            rewards = super()._calculate_rewards(*given)
            seen.append(rewards.mean().item())
            return rewards

        def _compute_loss(self, model, inputs):
            assert len(inputs["advantages"]) % self.num_generations == 0
            return super()._compute_loss(model, inputs)

    class Copied(GRPOTrainer):
        pass

    exec(copied_method(), vars(__import__("trl.trainer.grpo_trainer", fromlist=[""])), space := {})
    Copied._generate_and_score_completions = space["_generate_and_score_completions"]
    plain = build(max_steps=2)
    trained(plain)
    for cls in (Logging, Copied):
        trainer = rebuilt(build(max_steps=2), cls)
        trained(trainer)
        assert same_weights(weights(plain), weights(trainer))
    assert len(seen) == 2


def copied_method():
    import inspect
    import textwrap

    return textwrap.dedent(inspect.getsource(inspect.unwrap(WHOLE)))

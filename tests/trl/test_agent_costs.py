"""Costs that environments and reward functions report to TRL's real trainer, and a budget in them."""

import numpy as np
import pytest
from conftest import attach, logged
from test_row_shapes import chatting, conversations, odd_letters, scripted

import budgetalloc as ba
from budgetalloc.trl.step import GROUP

pytestmark = pytest.mark.slow
SEEN = []  # the task, the turns and the tool's seconds of each rollout
PRICES = {"tokens": 1.0, "turns": 50.0, "tool_seconds": 200.0}


class Counting:
    """An environment that counts its turns, and the seconds of its tool."""

    def reset(self, prompt_id, **_):
        self.task, self.turns, self.tool_seconds = prompt_id, 1, 0.0

    def look(self, n: int) -> str:
        """
        Looks.

        Args:
            n: Where.
        """
        self.turns += 1
        self.tool_seconds += 0.25 * n
        return str(n)

    def get_reward(self):
        SEEN.append((self.task, self.turns, self.tool_seconds))
        return float(self.task % 2)


CALL = '{"name": "look", "arguments": {"n": 2}}'


def playing(build, factory=Counting, reward=(), cost=PRICES, **given):
    SEEN.clear()
    data = conversations()
    trainer = chatting(build, data, list(reward), {"environment_factory": factory}, max_completion_length=96)
    scripted(trainer, lambda text: CALL)
    callback = attach(trainer, ba.adaptive(seed=0), cost=cost, **given)
    batches, observe = [], callback.session.end

    def end(*more):
        batches.append(callback.session.record())
        return observe(*more)

    callback.session.end = end
    trainer.train()
    return trainer, batches


def test_what_an_environment_counts_is_what_its_rollout_costs(build, ledger):
    trainer, batches = playing(build, ledger=ledger)
    assert [len(batch) for batch in batches] == [16, 16]
    for batch, seen in zip(batches, np.split(np.array(SEEN), 2), strict=True):
        assert batch.ids_R == seen[:, 0].astype(int).tolist()
        assert batch.reported["turns"].tolist() == seen[:, 1].tolist()
        assert batch.reported["tool_seconds"].tolist() == seen[:, 2].tolist()
        assert set(seen[:, 1]) == {1, 2}  # every second rollout called the tool
        own_R = batch.lengths_R + 50 * seen[:, 1] + 200 * seen[:, 2]
        assert batch.costs_R == pytest.approx(own_R + batch.prompt_lengths_R / batch.counts_R)
    assert logged(trainer, "budgetalloc/cost/rollout") == pytest.approx([x.costs_R.mean() for x in batches])
    assert logged(trainer, "budgetalloc/cost/missing") == [0, 0]


def test_a_reward_function_reports_by_log_extra_and_what_it_leaves_out_is_said_once(build, caplog):
    def judge(prompts, completions, log_extra, **named):
        log_extra("judge_seconds", [None if name % 3 == 0 else 0.5 for name in named[GROUP]])
        return odd_letters(prompts, completions)

    trainer, batches = playing(build, reward=[judge], cost={"judge_seconds": 10.0})
    for batch in batches:
        without_R = np.array([name % 3 == 0 for name in batch.ids_R])
        assert np.isnan(batch.reported["judge_seconds"]).tolist() == without_R.tolist()
        assert batch.costs_R[~without_R] == pytest.approx(5)
    assert batches[1].costs_R == pytest.approx(5)  # a missing report counts as expected
    assert caplog.text.count("reported no 'judge_seconds' that is a number") == 1
    assert sum(logged(trainer, "budgetalloc/cost/missing")) == sum(n % 3 == 0 for b in batches for n in b.ids_R)
    assert not any("nan" in str(value) for entry in trainer.state.log_history for value in entry.values())


def test_turns_are_counted_and_an_unknown_name_costs_nothing(build, caplog):
    class Silent(Counting):
        def reset(self, prompt_id, **_):
            super().reset(prompt_id)
            del self.turns

        def look(self, n: int) -> str:
            """
            Looks.

            Args:
                n: Where.
            """
            return str(n)

        def get_reward(self):
            return float(self.task % 2)

    trainer, batches = playing(build, factory=Silent, cost={"turns": 1.0, "api_calls": 9.0})
    for batch in batches:
        assert set(batch.reported["turns"]) == {1, 2}  # the model's messages
        assert batch.costs_R.tolist() == batch.reported["turns"].tolist()
    assert caplog.text.count("reported 'api_calls', so it counts as 0 until one does") == 1
    assert trainer.state.global_step == 2

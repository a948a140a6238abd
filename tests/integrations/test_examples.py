"""The examples that people start from, each on a tiny model: they train, and do what they say."""

import doctest
import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import rows
from datasets import Dataset
from test_row_shapes import END, letters, scripted, text_config
from tiny_llama import tiny_config, tiny_llama
from transformers import AutoTokenizer, LlamaForSequenceClassification

import budgetalloc as ba
from budgetalloc.cli.testbed.skills import WEIGHTS
from budgetalloc.contrib.domains import Domains
from budgetalloc.contrib.shadow import Shadow
from budgetalloc.report import as_json, report
from budgetalloc.trl import AdaptiveGRPOCallback

pytestmark = pytest.mark.slow
FOLDER = Path(__file__).parents[2] / "integrations"
TINY = {"per_device_train_batch_size": 16, "num_generations": 4, "learning_rate": 1e-2, "max_steps": 2}
TINY |= {"disable_tqdm": True, "save_strategy": "no", "logging_steps": 1}


def speaker():
    return tiny_llama(text_config())


def example(path):
    spec = importlib.util.spec_from_file_location(f"example_{Path(path).stem}", FOLDER / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def small(tmp_path):
    """Arguments that make any of the examples small."""
    return TINY | {"output_dir": str(tmp_path / "run"), "ledger": str(tmp_path / "ledger.jsonl")}


def trained(trainer, small):
    """Trains; returns the callback and the ledger of two steps of 16 rollouts."""
    trainer.train()
    (callback,) = [x for x in trainer.callback_handler.callbacks if isinstance(x, AdaptiveGRPOCallback)]
    ledger = ba.Ledger.read(small["ledger"])
    assert np.bincount(ledger.frame.step.to_numpy()).tolist() == [16, 16]
    return callback, ledger


def test_the_first_run(tmp_path, monkeypatch, capsys):
    """As it is pasted, but for its size: 2 steps of 32 rollouts."""
    monkeypatch.chdir(tmp_path)
    code = (FOLDER / "trl/first_run.py").read_text(encoding="utf-8")
    size = "STEPS, ROLLOUTS = 60, 256"
    assert code.count(size) == 1
    space = {}
    exec(compile(code.replace(size, "STEPS, ROLLOUTS = 2, 32"), "first_run.py", "exec"), space)
    assert space["before"] != space["after"]  # it trained
    said = f"{space['before']:.3f} before, {space['after']:.3f} after 64 rollouts."
    assert f"Success on held-out prompts: {said}" in capsys.readouterr().out


def test_a_right_answer_and_a_format(small):
    gsm8k = example("trl/gsm8k.py")
    data = gsm8k.rows(
        Dataset.from_list([{"question": f"{n} + 1,000?", "answer": f"So.\n#### {n + 1000:,}"} for n in range(24)])
    )
    assert data[3]["answer"] == "1003"
    assert set(data.column_names) == {"prompt", "answer"}
    right = [[{"role": "assistant", "content": text}] for text in ("1. <answer> 1,003 </answer>", "<answer>4</answer>")]
    assert gsm8k.correct([*right, "<answer>1003</answer>.", "1003"], ["1003"] * 4) == [1, 0, 0, 0]
    assert gsm8k.formatted([*right, "<answer>1003</answer>.", "1003"]) == [1, 1, 0, 0]
    small = small | {"max_completion_length": 8, "processing_class": letters()}
    callback, ledger = trained(gsm8k.build(speaker(), data, **small), small)
    assert callback.batch.success_R.tolist() == [0.0] * 16  # of the answer alone
    assert set(ledger.frame.reward.to_numpy()) == {0.0}


def test_domains_keep_their_shares(small):
    domains = example("trl/domains.py")
    names = ["math", "code", "chat"]
    data = Dataset.from_list([row | {"answer": "7", "domain": names[n % 3]} for n, row in enumerate(rows())])
    assert domains.correct(["a 7 ", "7 a", "7 a"], ["7"] * 3, ["math", "math", "code"]) == [1, 0, 1]
    with pytest.raises(ValueError, match=r"\['chat'\] have no verifier"):
        domains.correct(["7"], ["7"], ["chat"])
    domains.VERIFIERS["chat"] = domains.ends_with
    small = small | {"max_completion_length": 3}
    trainer = domains.build(str(WEIGHTS), data, mixture="learn", **small)
    callback, ledger = trained(trainer, small)
    assert callback.session.part(Domains).quotas.mixture is not None
    for step in (0, 1):
        chosen = [
            names[name % 3]
            for name, at in zip(ledger.frame.prompt.tolist(), ledger.frame.step.to_numpy(), strict=True)
            if at == step
        ]
        assert 0.4 <= chosen.count("math") / 16 <= 0.6
        assert chosen.count("code") / 16 >= 0.2


def test_a_reward_model(small):
    config = tiny_config(39, num_hidden_layers=1, num_labels=1, pad_token_id=0)
    judge = tiny_llama(config, 3, LlamaForSequenceClassification)
    small = small | {"max_completion_length": 3}
    tokenizer = AutoTokenizer.from_pretrained(WEIGHTS)
    trainer = example("trl/reward_model.py").build(
        str(WEIGHTS), judge, rows(), reward_processing_classes=tokenizer, **small
    )
    callback, ledger = trained(trainer, small)
    assert len(set(ledger.frame.reward.to_numpy())) > 8  # any number
    assert 0 <= callback.batch.success_R.min() < callback.batch.success_R.max() <= 1


def test_a_tool_of_several_turns(small):
    tools = example("trl/tools.py")
    game = tools.HigherOrLower()
    assert game.reset(secret=5, most=8) is None
    assert [game.guess(n) for n in (4, 6)] == ["higher", "lower"]
    assert game.get_reward() == 0
    assert (game.guess(5), game.guess(1), game.get_reward()) == ("found", "higher", 1)  # found stays found
    data = tools.games(24)
    assert all(1 <= row["secret"] <= row["most"] for row in data)
    small = small | {"max_completion_length": 160, "processing_class": letters()}
    trainer = tools.build(speaker(), data, **small)
    scripted(trainer, lambda text: '{"name": "guess", "arguments": {"number": 1}}')  # every second rollout plays
    _, ledger = trained(trainer, small)
    played = {row["prompt_id"] for row in data if row["secret"] == 1}
    assert {
        name
        for name, reward in zip(ledger.frame.prompt.tolist(), ledger.frame.reward.to_numpy(), strict=True)
        if reward
    } <= played


def test_a_shadow_and_what_it_would_change(small):
    shadow = example("trl/shadow.py")
    assert shadow.correct(["a 7 ", [{"content": "17"}], "7 a"], ["7"] * 3) == [1, 1, 0]
    data = Dataset.from_list([row | {"answer": "7"} for row in rows()])
    small = small | {"max_completion_length": 3}
    trainer = shadow.build(str(WEIGHTS), data, **small)
    callback, _ = trained(trainer, small)
    assert callback.policy.name.startswith("uniform")
    assert len(callback.session.part(Shadow).session.policy.estimator) == len(callback.policy.estimator) > 0
    said = shadow.verdict(trainer.state.log_history)
    assert len(said) == 6
    assert "nan" not in " ".join(said)
    assert doctest.testmod(shadow).failed == 0


def opening(trainer):
    """Replaces the model's answers: it opens the box that it was told last, until it has found the treasure."""
    tokenizer = trainer.processing_class

    def single_turn(prompt_ids, *_, **__):
        completions = []
        for ids in prompt_ids:
            text = tokenizer.decode(ids)
            box = re.findall(r"box (\d+)", text)[-1]
            call = f'<tool_call>\n{{"name": "open_box", "arguments": {{"number": {box}}}}}\n</tool_call>'
            completions.append(tokenizer(("done" if "\ntreasure\n" in text else call) + END)["input_ids"])
        return completions, None

    trainer._generate_single_turn = single_turn


def test_an_agent_whose_turns_vary(small):
    agent = example("trl/agent.py")
    game = agent.BoxChain()
    assert game.reset(boxes=[5, 7]) is None
    assert [game.open_box(n) for n in (4, 5, 5)] == ["empty", "box 7", "empty"]
    assert (game.get_reward(), game.open_box(7), game.get_reward()) == (0, "treasure", 1)
    assert game.turns == 5
    assert game.tool_seconds > 0
    data = agent.chains(24)
    assert {len(row["boxes"]) for row in data} == {1, 3, 9}
    small = small | {"max_completion_length": 1800, "processing_class": letters(), "max_steps": 2}
    config = text_config()
    config.max_position_embeddings = 4096
    trainer = agent.build(tiny_llama(config), data, cost_per_step=2000.0, **small)
    opening(trainer)
    callback, ledger = trained(trainer, small)
    batch = callback.batch
    assert set(batch.rewards_R) == {1.0}
    boxes = np.array([len(data[name]["boxes"]) for name in batch.ids_R])
    assert batch.reported["turns"].tolist() == (boxes + 1).tolist()  # the tenth turn is the answer
    assert (batch.reported["tool_seconds"] > 0).all()
    assert (batch.costs_R >= batch.lengths_R + 50 * batch.reported["turns"]).all()
    assert ledger.frame.cost.to_numpy()[16:] == pytest.approx(batch.costs_R, abs=1e-5)
    (*_, last) = [entry for entry in trainer.state.log_history if "budgetalloc/cost/target" in entry]
    assert last["budgetalloc/cost/target"] == 2000.0
    assert last["budgetalloc/cost/price"] > 1  # ten turns cost more
    assert "cost_per_success" in as_json(report(ledger, policies=()))


def test_the_check_of_unsloth_is_right_about_trl(tmp_path, monkeypatch, capsys):
    """Unsloth needs a GPU; what the script compares is compared with TRL alone here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["check.py", "--trl", "--model", str(WEIGHTS), "--steps", "2"])
    example("unsloth/check.py")
    printed = capsys.readouterr().out
    assert re.findall(r"^(uniform|knapsack|adaptive)\(.*\): (\w+)$", printed, re.MULTILINE) == [
        ("uniform", "RIGHT"),
        ("knapsack", "RIGHT"),
        ("adaptive", "RIGHT"),
    ]


@pytest.mark.parametrize("path", ["gsm8k", "domains", "reward_model", "tools", "agent", "shadow"])
def test_the_command_line_of_an_example_explains_itself(path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"{path}.py", "--help"])
    code = compile((FOLDER / f"trl/{path}.py").read_text(), path, "exec")
    with pytest.raises(SystemExit) as stop:
        exec(code, {"__name__": "__main__"})
    assert stop.value.code == 0
    assert f"python {path}.py" in capsys.readouterr().out

"""`budgetalloc doctor`: the run's own checks on what a script or a file says, in one screen."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from budgetalloc.cli.__main__ import main

ROOT = Path(__file__).parents[3]
SCRIPT = """
import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback
from datasets import Dataset, load_dataset
from trl import GRPOConfig, GRPOTrainer

def accuracy(completions, answer, **_): return [0.0] * len(completions)
def format_reward(completions, **_): return [1.0] * len(completions)

config = GRPOConfig("run", per_device_train_batch_size=32, num_generations=8, max_steps=2000{config})
train = {data}
trainer = {trainer}("model", reward_funcs=[accuracy, format_reward], args=config, train_dataset=train{more})
trainer.add_callback(AdaptiveGRPOCallback(trainer{callback}))
trainer.train()
"""
ROWS = 'Dataset.from_list([{"prompt": f"{n} =", "answer": str(n)} for n in range(3000)])'


def script(config="", data=ROWS, trainer="GRPOTrainer", more="", callback=""):
    parts = {"config": config, "data": data, "trainer": trainer, "more": more, "callback": callback}
    text = SCRIPT
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part)
    return text


@pytest.fixture
def said(tmp_path, capsys):
    """Exit status, answer and errors for the text of a file."""

    def run(text, *words, name="train.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        status = main(["doctor", str(path), *words, "--json"])
        seen = capsys.readouterr()
        return status, json.loads(seen.out) if seen.out else None, seen.err

    return run


def test_a_script_that_is_served(said):
    status, answer, errors = said(script(callback=", success='accuracy'"))
    assert (status, errors, answer["refused"], answer["warned"]) == (0, "", [], [])
    facts = dict(answer["facts"])
    assert facts["step"].startswith("32 rollouts = 4 prompts x 8, in 1 process")
    assert "3,000 rows" in facts["dataset"]
    assert "columns prompt, answer" in facts["dataset"]
    assert facts["rewards"] == "accuracy, format_reward; success is accuracy"
    assert facts["policy"] == "adaptive(seed=0), candidates='all', groups of 1 or more"
    assert answer["unread"] == []


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"config": ", multi_objective_aggregation='normalize_then_sum'"}, "normalises each reward over equal groups"),
        ({"config": ", generation_batch_size=36"}, "not a multiple"),
        ({"data": "load_dataset('x', streaming=True)"}, "which is not possible in a IterableDataset"),
        ({"data": "Dataset.from_dict({'question': ['a']})"}, "neither 'prompt_id' nor 'prompt'"),
        (
            {"data": "Dataset.from_list([{'prompt': '1'}, {'prompt': '2'}])"},
            "has 2 rows and a generation batch takes 4",
        ),
        ({"callback": ", success='acc'"}, "success='acc': the trainer has no reward function of this name"),
        ({"callback": ", candidates=0"}, "candidates=0: use 1, a larger integer or 'all'"),
        ({"callback": ", candidats=4"}, "has no argument candidats, did you mean candidates?"),
        ({"callback": ", quantum=5"}, "32 is not a multiple of 5"),
        ({"callback": ", ba.knapsack(value='hits')"}, "value='hits': use one of"),
        ({"callback": ", ba.adaptive(prior='pool')"}, "unexpected keyword argument 'prior'"),
        ({"callback": ", domain='subject'"}, "domain='subject' without quotas=None"),
        ({"callback": ", cost='time'"}, "cost='time': use 'tokens', 'seconds'"),
        ({"callback": ", ba.uniform(), cost=lambda prompt, answer: (0, answer)"}, "does not weigh costs"),
        ({"callback": ", hint=lambda row: row"}, "hint= with baseline='posterior'"),
        ({"trainer": "RLOOTrainer"}, "RLOOTrainer adds a KL penalty"),
        ({"more": ", environment_factory=Game"}, "With environment_factory the environment's reset() chooses"),
    ],
)
def test_what_is_refused_is_named_and_status_1(said, parts, text):
    status, answer, errors = said(script(**parts))
    assert (status, errors) == (1, "")
    assert any(text in reason for reason in answer["refused"]), answer["refused"]


def test_what_cannot_be_read_is_said_and_nothing_is_made_up(said):
    text = script(
        config=", gradient_accumulation_steps=args.steps",
        data="load_dataset('openai/gsm8k', 'main', split='train')",
        callback=", make_policy(), candidates=args.candidates",
    )
    status, answer, _ = said(text)
    assert (status, answer["refused"]) == (0, [])
    facts = dict(answer["facts"])
    assert (facts["step"], facts["policy"]) == ("not known", "not known")
    assert "rows not known" in facts["dataset"]
    assert sum("line " in text for text in answer["unread"]) == 3
    assert "gradient_accumulation_steps" in answer["unread"][0]


def test_what_hides_behind_stars_is_taken_for_the_default_and_said(said):
    status, answer, _ = said(script(config=", **{'num_generations': 4} | asked()").replace("num_generations=8, ", ""))
    assert status == 0
    assert dict(answer["facts"])["step"].startswith("32 rollouts = 8 prompts x 4")
    assert any("taken to be TRL's defaults" in text for text in answer["unread"])


def test_a_script_without_a_policy_is_shown_the_default(said):
    text = script().replace("trainer.add_callback(AdaptiveGRPOCallback(trainer))\n", "")
    status, answer, _ = said(text, "--processes", "2")
    assert status == 0
    assert "nothing is attached yet" in dict(answer["facts"])["policy"]
    assert "64 rollouts = 8 prompts x 8, in 2 processes" in dict(answer["facts"])["step"]
    assert any("success is chosen at the first step" in text for text in answer["advice"])


@pytest.mark.parametrize(
    ("data", "config", "text"),
    [
        (ROWS.replace("3000", "500"), "", "prompts return while"),
        (ROWS, "", "starts each with a group of 4"),
        (ROWS.replace("3000", "30000"), "", "less than an epoch"),
        (ROWS.replace("3000", "30000"), ", gradient_accumulation_steps=40", "prompts return while"),
        ("load_dataset('x', streaming=True)", "", "uniform(), or inside the batch policies.hora()"),
        ("load_dataset('x')", "", "Pool against rollouts is not known"),
    ],
)
def test_the_policy_that_fits_is_told_from_pool_and_rollouts(said, data, config, text):
    answer = said(script(data=data, config=config))[1]
    assert any(text in sentence for sentence in answer["advice"]), answer["advice"]


def test_a_local_file_of_json_lines_is_read(said, tmp_path):
    """Its rows, its prompts, their length; one name for two prompts; quotas that no prompt can keep."""
    rows = [{"prompt": f"{n} " * 800, "prompt_id": n % 50, "subject": "math"} for n in range(100)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = f"load_dataset('json', data_files={str(tmp_path / 'train.jsonl')!r}, split='train')"
    answer = said(script(data=data))[1]
    assert any("names two prompts of the train dataset" in text for text in answer["refused"])
    rows = [row | {"prompt_id": row["prompt"][:3]} for row in rows]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, answer, _ = said(script(data=data, callback=", domain='subject', quotas={'code': (0.3, 0.5)}"))
    assert status == 1
    assert any("no prompt has this domain" in text for text in answer["refused"])
    status, answer, _ = said(script(data=data, config=", max_completion_length=16"))
    assert status == 0
    assert "100 rows, 100 prompts" in dict(answer["facts"])["dataset"]
    assert any("use min_group=4" in text for text in answer["advice"])


def test_a_file_of_settings(said):
    """As of integrations/trl/train.py: one that trains, one whose pacing TRL cannot follow, one with a mistake."""
    text = "policy: adaptive\nmodel: m\ngrpo: {per_device_train_batch_size: 64, num_generations: 8}\n"
    status, answer, _ = said(text, name="mine.yaml")
    assert (status, dict(answer["facts"])["step"][:30]) == (0, "64 rollouts = 8 prompts x 8, i")
    status, answer, _ = said(text + "budget: {rollouts: 32}\n", name="mine.yaml")
    assert status == 1
    assert "line 4: budget.rollouts: 32: this trainer generates 64 rollouts a step" in answer["refused"][0]
    status, answer, _ = said("pacing: {name: constant, rollouts: 640, steps: 10}\n", name="mine.yaml")
    assert status == 1
    assert "AdaptiveRolloutWorker(rollouts_per_step=) serve it" in answer["refused"][0]
    status, answer, errors = said("policy: adaptve\n", name="mine.yaml")
    assert (status, answer) == (2, None)
    assert "did you mean adaptive?" in errors


def test_verl_s_configuration_and_its_overrides(said, capsys):
    text = """
    algorithm: {adv_estimator: grpo}
    trainer: {v1: {trainer_mode: budgetalloc}}
    budgetalloc: {policy: adaptive}
    data: {train_batch_size: 128}
    actor_rollout_ref: {rollout: {n: 8}}
    """
    status, answer, _ = said(text, name="verl.yaml")
    assert (status, answer["refused"]) == (0, [])
    assert dict(answer["facts"])["step"].startswith("128 prompts x 8 rollouts")
    for word, reason in (
        ("algorithm.adv_estimator=rloo", "the advantages of adaptive(seed=0) would replace those of rloo"),
        ("+budgetalloc.candidates=0", "candidates=0: use 1"),
        ("+budgetalloc.plicy=uniform", "budgetalloc.plicy is unknown, did you mean policy?"),
        ("trainer.v1.trainer_mode=sync", "no policy is attached"),
        ("algorithm.filter_groups.enable=true", "verl drops groups of equal rewards"),
        ("+budgetalloc.quantum=3", "is not a multiple of 3"),
    ):
        status, answer, _ = said(text, word, name="verl.yaml")
        assert status == 1
        assert any(reason in text for text in answer["refused"]), (word, answer["refused"])
    words = ["trainer.v1.trainer_mode=budgetalloc", "algorithm.adv_estimator=grpo", "+budgetalloc.policy=knapsack"]
    assert main(["doctor", *words]) == 0
    assert "knapsack(" in capsys.readouterr().out
    assert main(["doctor", *words, "what"]) == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("none.py", None, "No such file"),
        ("bad.py", "def f(:\n", "line 1: not Python"),
        ("nul.py", "\0", "not Python"),
        ("deep.py", "x = " + "(" * 5000, "not Python"),
        ("other.py", "print(1)\n", "makes neither a GRPOTrainer nor a GRPOConfig"),
        ("bad.yaml", "a: [1\n", "not YAML"),
        ("unknown.yaml", "modle: x\n", "unknown key, did you mean model?"),
    ],
)
def test_bad_input_is_one_line_and_status_2(tmp_path, capsys, name, text, message):
    if text is not None:
        (tmp_path / name).write_text(text)
    assert main(["doctor", str(tmp_path / name)]) == 2
    seen = capsys.readouterr()
    assert (seen.out, seen.err.count("\n")) == ("", 1)
    assert message in seen.err


@pytest.mark.parametrize("path", sorted((ROOT / "integrations/trl").glob("*.py")), ids=lambda path: path.name)
def test_the_scripts_to_start_from_are_served(path, capsys):
    assert main(["doctor", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert dict(answer["facts"])["trainer"] == "GRPOTrainer"
    assert len(answer["unread"]) <= 4


def test_it_fits_on_one_screen_and_loads_neither_torch_nor_trl(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(script(callback=", ba.knapsack(), candidates=4, quantum=3", config=", save_steps=x"))
    code = (
        "import sys; from budgetalloc.cli.__main__ import main; main(sys.argv[1:]);"
        "print([m for m in ('torch', 'trl', 'transformers', 'datasets', 'pandas') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code, "doctor", str(path)], capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()
    assert lines.pop() == "[]"
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 110
    assert "REFUSED: 1 reason" in lines

"""`budgetalloc doctor` makes the run's own checks on a script or a settings file."""

import gzip
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
def printed(tmp_path, capsys):
    """Exit status, output and errors for the text of a file; None writes no file."""

    def run(text, *words, name="train.py"):
        if text is not None:
            (tmp_path / name).write_text(textwrap.dedent(text))
        status = main(["doctor", str(tmp_path / name), *words])
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def said(printed):
    """Exit status, answer and errors for the text of a file."""

    def run(text, *words, name="train.py"):
        status, out, errors = printed(text, *words, "--json", name=name)
        return status, json.loads(out) if out else None, errors

    return run


def test_a_script_that_is_served(said):
    status, answer, errors = said(script(callback=", success='accuracy'"))
    assert (status, errors, answer["refused"], answer["warned"]) == (0, "", [], [])
    facts = dict(answer["facts"])
    assert facts["step"].startswith("32 rollouts = 4 prompts x 8, in 1 process")
    assert "3,000 rows" in facts["dataset"]
    assert "columns prompt, answer" in facts["dataset"]
    assert facts["rewards"] == "accuracy, format_reward"
    assert "Of 2 rewards (accuracy, format_reward) success is accuracy=1, as success= says." in answer["advice"]
    assert answer["unchecked"] == []
    assert facts["policy"] == "adaptive(seed=0), candidates='all', groups of 1 or more"
    assert answer["unread"] == []


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"config": ", multi_objective_aggregation='normalize_then_sum'"}, "normalises each reward over equal groups"),
        ({"config": ", generation_batch_size=36"}, "not a multiple"),
        ({"data": "load_dataset('x', streaming=True)"}, "which is not possible in a IterableDataset"),
        ({"data": "load_dataset('x', streaming=True)\ntrain = train.map(f)"}, "not possible in a IterableDataset"),
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
        ({"callback": ", ba.adaptive(prior='pool')"}, "adaptive() has no argument prior"),
        ({"callback": ", domain='subject'"}, "domain='subject' without quotas=None"),
        ({"callback": ", mixture='learn'"}, "mixture='learn' without domain="),
        ({"callback": ", domain='subject', mixture='lern'"}, "mixture='lern': use one of 'learn'"),
        ({"callback": ", features='level'"}, "features='level': the train dataset has no column 'level'"),
        ({"callback": ", features=['text', 'run:no.jsonl']"}, "there is no file or folder 'no.jsonl'"),
        ({"callback": ", features=3"}, "features=3: name at least one column"),
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


def test_what_cannot_be_read_is_listed(said):
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
    assert answer["unchecked"] == ["step", "dataset", "policy"]
    assert sum("line " in text for text in answer["unread"]) == 4
    assert "gradient_accumulation_steps" in answer["unread"][0]


UNREADABLE = """args = parser.parse_args()
config = GRPOConfig('run', per_device_train_batch_size=args.batch, num_generations=args.group)
data = load(args.data)
trainer = GRPOTrainer(args.model, rewards_of(args), config, data)
trainer.add_callback(AdaptiveGRPOCallback(trainer))
"""


def test_without_readable_values_there_is_no_verdict_and_status_is_2(printed):
    status, shown, _ = printed(UNREADABLE)
    assert status == 2
    assert "NOTHING WAS CHECKED: neither the step nor the dataset nor the rewards could be read" in shown
    assert "REFUSED" not in shown
    assert "fits" not in shown
    for text in ("line 2: GRPOConfig(per_device_train_batch_size, num_gen", "line 4: reward_funcs=rewards_of(args)"):
        assert text in shown
    assert "line 4: train_dataset=data: rows and columns" in shown


@pytest.mark.parametrize(
    ("text", "status", "verdict"),
    [
        (script(), 0, "REFUSED: nothing\n"),
        (
            script(data="load_dataset('openai/gsm8k')"),
            0,
            "REFUSED: nothing of what could be read. NOT CHECKED: dataset\n",
        ),
        (  # the policy's arguments were checked
            UNREADABLE.replace("Callback(trainer)", "Callback(trainer, ba.vade(seed=1))"),
            0,
            "REFUSED: nothing of what could be read. NOT CHECKED: step, dataset, rewards",
        ),
        (script(callback="".join(f", x{n}=1" for n in range(300))), 1, "REFUSED: 300 reasons"),
        (script(callback="".join(f", x{n}=1" for n in range(300))), 1, "... and 280 more"),
    ],
    ids=["all", "no dataset", "policy alone", "reasons", "more reasons"],
)
def test_the_verdict(printed, text, status, verdict):
    given = printed(text)
    assert given[0] == status
    assert verdict in given[1]


def test_all_mistakes_are_listed_at_once(said):
    wrong = "num_iterations=None, save_steps='often', reward_weights=[1.0]"
    own = "ba.knapsack(value='hits', seed=-1, prir=(1, 1)), candidats=1, quantum=0"
    status, answer, _ = said(script(config=f", {wrong}", callback=f", {own}"))
    assert status == 1
    for text in (
        "GRPOConfig(num_iterations=None): use a positive integer",
        "GRPOConfig(save_steps='often'): use a number",
        "value='hits'",
        "seed=-1",
        "quantum=0",
        "knapsack() has no argument prir, did you mean prior?",
        "AdaptiveGRPOCallback has no argument candidats, did you mean candidates?",
    ):
        assert sum(text in reason for reason in answer["refused"]) == 1, (text, answer["refused"])
    own = "candidates=0, quantum='x', weight='token', domain='a', quotas=3, min_group=-1"
    answer = said(script(config=", reward_weights=[1.0]", callback=f", {own}"))[1]
    named = [reason.partition("=")[0] for reason in answer["refused"]]
    assert sorted(named) == ["GRPOConfig(reward_weights", "candidates", "min_group", "quantum", "quotas", "weight"]


@pytest.mark.parametrize("name", ["RLOOTrainer", "SDPOTrainer", "OnlineDPOTrainer"])
def test_for_a_refused_trainer_no_policy_is_recommended(said, name):
    status, answer, _ = said(script(trainer=name))
    assert (status, answer["advice"]) == (1, [])


def test_the_worker_of_the_asynchronous_trainer_checks_itself(said):
    text = script(trainer="AsyncGRPOTrainer", more=", rollout_worker=AdaptiveRolloutWorker(ba.vade())")
    status, answer, _ = said(text.replace("trainer.add_callback(AdaptiveGRPOCallback(trainer))\n", ""))
    assert (status, answer["refused"], answer["unchecked"]) == (0, [], ["policy"])
    assert any("AdaptiveRolloutWorker" in text for text in answer["unread"])


@pytest.mark.parametrize(
    ("config", "callback", "kept"),
    [
        ("", "", None),
        (", scale_rewards='group'", "", None),
        (", scale_rewards=True", "", None),
        (", scale_rewards=False", "", "none"),
        (", scale_rewards='none'", "", "none"),
        (", scale_rewards='batch'", "", "batch"),
        (", scale_rewards='batch'", ", scale='none'", None),
    ],
)
def test_the_trainer_s_own_scale_is_kept(said, config, callback, kept):
    status, answer, _ = said(script(config=config, callback=callback))
    assert status == 0
    lines = [text.partition(". ") for text in answer["advice"] if "scale_rewards" in text]
    assert [start for start, _, _ in lines] == ([f"scale_rewards={kept!r} is kept"] if kept else [])
    assert all("measured adaptive() with 'group'" in end for _, _, end in lines)


@pytest.mark.parametrize(
    ("callback", "text"),
    [
        ("", "success is chosen at the first step: name it, success='...'."),
        (", success=1", "success is format_reward=1, as success= says."),
        (", success=1.5", "success is a total reward of at least 1.5, as success= says."),
        (", success=lambda rewards: rewards['accuracy']", "success is what your function returns, as success= says."),
    ],
)
def test_success_of_several_rewards(said, callback, text):
    answer = said(script(callback=callback))[1]
    assert f"Of 2 rewards (accuracy, format_reward) {text}" in answer["advice"]


def test_steps_are_counted_in_rows_and_prompts_once(said):
    """240 rows, 24 of them twins: TRL makes 30 batches of 8 rows in an epoch, not 27 of 216 prompts."""
    rows = "Dataset.from_list([" + ", ".join(f"{{'prompt': '{n % 216}'}}" for n in range(240)) + "])"
    config = ", generation_batch_size=64, num_train_epochs=1"
    answer = said(script(data=rows, config=config).replace(", max_steps=2000", ""))[1]
    assert "240 rows, 216 prompts" in dict(answer["facts"])["dataset"]
    assert any("216 prompts for 64 rollouts a step, 8.9 a prompt over 30 steps" in text for text in answer["advice"])


def test_a_file_that_unpacks_to_more_than_is_read(said, tmp_path, monkeypatch):
    monkeypatch.setattr("budgetalloc.cli.doctor.data._MOST", 10_000)
    path = tmp_path / "train.jsonl.gz"
    for rows, known in ((100, "100 rows"), (10_000, "too large to be read here: rows not known")):
        with gzip.open(path, "wt") as file:
            file.write('{"prompt": [[], [], []]}\n' * rows)
        answer = said(script(data=f"load_dataset('json', data_files={str(path)!r})"))[1]
        assert known in dict(answer["facts"])["dataset"]
    path.write_bytes(path.read_bytes()[:40])
    status, _, errors = said(script(data=f"load_dataset('json', data_files={str(path)!r})"))
    assert status == 2
    assert "cannot be unpacked" in errors


@pytest.mark.parametrize(
    "parts",
    [
        {"callback": f", {'x' * 90_000}=1"},
        {"callback": f", ba.knapsack({'x' * 90_000}=1)"},
        {"callback": f", success='{'x' * 90_000}'"},
        {"callback": "".join(f", x{n}=1" for n in range(3000))},
        {"config": f", multi_objective_aggregation='{'x' * 90_000}'"},
        {"config": f", save_steps='{'x' * 90_000}'"},
        {"data": f"Dataset.from_list([{{'{'x' * 90_000}': 1}}])"},
        {"data": f"load_dataset('{'x' * 90_000}')"},
        {"data": f"load_dataset('json', data_files='{'x' * 90_000}.jsonl')"},
    ],
    ids=range(9),
)
def test_what_is_printed_is_bounded(printed, parts):
    status, out, errors = printed(script(**parts))
    assert status in (0, 1, 2)
    assert len(out) < 10_000
    assert errors == ""


@pytest.mark.parametrize(
    "more",
    [
        "data = data.map(f)\n" * 3000,
        "data = data.map(data)\n" * 30,
        "".join(f"a{n + 1} = a{n}\n" for n in range(5000)) + "data = a5000\n",
        "".join(f"class A{n + 1}(A{n}): pass\n" for n in range(1000)) + "A1000()\n" * 1000,
        "class A(" + ", ".join(f"B{n}" for n in range(9000)) + "): pass\nA()\n",
    ],
    ids=["maps", "maps of itself", "names", "classes", "bases"],
)
def test_names_with_many_values_are_followed_once(said, more):
    text = script(data="load_dataset('x')").replace("trainer = ", more.replace("data", "train") + "trainer = ", 1)
    status, answer, _ = said(text)
    assert status == 0
    assert "rows not known" in dict(answer["facts"])["dataset"]


def test_arguments_behind_stars_count_as_the_defaults(said):
    status, answer, _ = said(script(config=", **{'num_generations': 4} | asked()").replace("num_generations=8, ", ""))
    assert status == 0
    assert dict(answer["facts"])["step"].startswith("32 rollouts = 8 prompts x 4")
    assert any("taken to be TRL's defaults" in text for text in answer["unread"])


def test_a_step_that_may_be_behind_stars_is_not_known(said):
    text = script(config=", **vars(args)").replace("per_device_train_batch_size=32, num_generations=8, ", "")
    status, answer, _ = said(text)
    assert (status, answer["unchecked"], dict(answer["facts"])["step"]) == (0, ["step"], "not known")


def test_without_a_policy_the_default_is_shown(said):
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
        (ROWS, ", reward_weights=[1.0]", "fits once what is refused is changed"),
    ],
)
def test_the_advice_depends_on_pool_and_rollouts(said, data, config, text):
    answer = said(script(data=data, config=config))[1]
    assert any(text in sentence for sentence in answer["advice"]), answer["advice"]


def test_a_local_file_of_json_lines_is_read(said, tmp_path):
    """Rows, prompts and lengths; a name that two prompts share; quotas that no prompt can keep."""
    rows = [{"prompt": f"{n} " * 800, "prompt_id": n, "subject": "math"} for n in range(100)]
    path = tmp_path / "train.jsonl"
    data = f"load_dataset('json', data_files={str(path)!r}, split='train')"
    path.write_text("".join(json.dumps(row | {"prompt_id": row["prompt_id"] % 50}) + "\n" for row in rows))
    answer = said(script(data=data))[1]
    assert any("names two prompts of the train dataset" in text for text in answer["refused"])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, answer, _ = said(script(data=data, callback=", domain='subject', quotas={'code': (0.3, 0.5)}"))
    assert status == 1
    assert any("no prompt has this domain" in text for text in answer["refused"])
    status, answer, _ = said(script(data=data, config=", max_completion_length=16"))
    assert status == 0
    assert "100 rows, 100 prompts" in dict(answer["facts"])["dataset"]
    assert any("use min_group=4" in text for text in answer["advice"])


def test_a_file_of_settings(said):
    """A file for integrations/trl/train.py that trains, one whose pacing TRL cannot follow, one with a mistake."""
    text = "policy: adaptive\nmodel: m\ngrpo: {per_device_train_batch_size: 64, num_generations: 8}\n"
    status, answer, _ = said(text, name="mine.yaml")
    assert (status, dict(answer["facts"])["step"][:30]) == (0, "64 rollouts = 8 prompts x 8, i")
    status, answer, _ = said("grpo: {num_iterations: x, save_steps: [1]}\n", name="mine.yaml")
    assert [reason.partition("GRPOConfig")[2] for reason in answer["refused"]] == [
        "(num_iterations='x'): use a positive integer.",
        "(save_steps=[1]): use a number.",
    ]
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
        ("trainer.v1.trainer_mode=[1]", "trainer.v1.trainer_mode=[1]: no policy is attached"),
        ("+budgetalloc.quantum=3", "is not a multiple of 3"),
    ):
        status, answer, _ = said(text, word, name="verl.yaml")
        assert status == 1
        assert any(reason in text for text in answer["refused"]), (word, answer["refused"])
    words = ["trainer.v1.trainer_mode=budgetalloc", "algorithm.adv_estimator=grpo", "+budgetalloc.policy=knapsack"]
    assert main(["doctor", *words]) == 0
    assert "knapsack(" in capsys.readouterr().out
    wrong = ("what", "trainer=3", "trainer.v1=x", "algorithm.filter_groups=[1]", "budgetalloc=1", "a." * 3000 + "b=1")
    for word in wrong:
        capsys.readouterr()
        assert main(["doctor", *words, word]) == 2
        assert len(capsys.readouterr().err) < 1500


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("other.py", "print(1)\n", "makes neither a GRPOTrainer nor a GRPOConfig"),
        ("none.py", None, "No such file"),
        ("bad.py", "def f(:\n", "line 1: not Python"),
        ("nul.py", "\0", "not Python"),
        ("long.py", "x = 1\n" * 40_000, "more than 200,000 characters"),
        ("deep.py", "x = " + "(" * 5000, "not Python"),
        ("bad.yaml", "a: [1\n", "not YAML"),
        ("unknown.yaml", "modle: x\n", "unknown key, did you mean model?"),
    ],
)
def test_bad_input_is_one_line_and_status_2(printed, name, text, message):
    status, out, errors = printed(text, name=name)
    assert (status, out, errors.count("\n")) == (2, "", 1)
    assert message in errors


# first_run.py makes its trainer twice, in a function, of arguments that it is called with.
SCRIPTS = sorted(set((ROOT / "integrations/trl").glob("*.py")) - {ROOT / "integrations/trl/first_run.py"})


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_the_scripts_to_start_from_are_served(path, capsys):
    assert main(["doctor", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (dict(answer["facts"])["trainer"], answer["refused"]) == ("GRPOTrainer", [])
    assert len(answer["unread"]) <= 5


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

"""The command line, and the recipe of integrations/trl, as a user runs them."""

import ast
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import yaml

import budgetalloc as ba
from budgetalloc.cli.__main__ import main
from budgetalloc.cli.commands.demo import table
from budgetalloc.cli.commands.recipe import RECIPES, text_of
from budgetalloc.cli.testbed.skills import WEIGHTS, answer, pool, skill_of
from budgetalloc.methods.table import METHODS

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "budgetalloc.cli"]
COMMANDS = ("check", "report", "replay", "demo", "methods", "recipe")


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A ledger of 12 steps of 16 prompts x 4 rollouts: one prompt in four fails, passes, and two are mixed."""
    path = tmp_path_factory.mktemp("log") / "ledger.jsonl"
    writer = ba.LedgerWriter(path)
    rewards = np.array([[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 0, 1]] * 4, dtype=float).ravel()
    for step in range(12):
        ids = [f"p{prompt}" for prompt in range(16) for _ in range(4)]
        writer.append(step, ids, rewards, [10] * 64, [0.5] * 64, [4] * 64)
    return path


def said(capsys, *argv):
    """Exit status, stdout and stderr of a command in this process."""
    try:
        status = main([str(x) for x in argv])
    except SystemExit as stop:
        status = stop.code
    return status, *capsys.readouterr()


def replayed(capsys, log, *words):
    """The JSON answer of a replay with one seed in this process."""
    status, out, errors = said(capsys, "replay", log, "--seeds", 1, "--workers", 1, "--json", *words)
    assert (status, errors) == (0, "")
    return json.loads(out)


def without_extras(argv):
    """A command in a new process, from which the packages of all extras are hidden."""
    extras = ["pandas", "pyarrow", "matplotlib", "tqdm", "torch", "trl", "transformers", "datasets", "wandb", "ortools"]
    extras.append("joblib")
    code = f"import sys; sys.modules |= dict.fromkeys({extras}); from budgetalloc.cli.__main__ import main; "
    return subprocess.run([sys.executable, "-c", f"{code}sys.exit(main({argv}))"], capture_output=True, text=True)


@pytest.mark.slow
def test_demo_end_to_end(tmp_path, capsys):
    """Four steps of the real demo with two seeds: the table, the picture, the results and the ledgers."""
    words = ["demo", "--steps", "4", "--seeds", "2", "--workers", "1", "--out", str(tmp_path)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert (tmp_path / "table.md").read_text().strip() in printed
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    results = json.loads((tmp_path / "results.json").read_text())
    assert list(results) == ["uniform", "adaptive", "adaptive(rounds=3)"]
    starts, ends = set(), set()
    for name, by_seed in results.items():
        assert list(by_seed) == ["20", "21"]
        for seed, (start, end) in by_seed.items():
            assert (start["rollouts"], end["rollouts"]) == (0, 4 * 256)
            starts.add(start["success"])
            ends.add(end["success"])
            file = {"adaptive(rounds=3)": "adaptive_rounds_3"}.get(name, name)
            ledger = ba.Ledger.read(tmp_path / f"{file}_{seed}.jsonl")
            assert len(ledger) == 4 * 256
            sizes = set(ledger.frame.groupby(["step", "prompt"]).prompt.transform("size").tolist())
            # uniform: the best size; adaptive: 2 without history, then 1, and 4 if both failed; in rounds up to 8
            assert sizes == {"uniform": {2}, "adaptive": {1, 2, 4}, "adaptive(rounds=3)": {1, 2, 4, 8}}[name]
    assert len(starts) == 1  # the same weights
    assert len(ends) == 6  # each policy and seed trained on rollouts of its own


def test_the_table_of_the_demo_says_how_many_seeds_agree():
    Point = namedtuple("Point", ["success", "rollouts"])
    ends = {"uniform": (0.8, 0.7), "better": (0.9, 0.8), "worse": (0.7, 0.74)}
    curves = {name: [[Point(0.4, 0), Point(end, 512)] for end in of_seeds] for name, of_seeds in ends.items()}
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table(curves).splitlines()]
    assert cells[2][:2] == ["uniform", "0.750 (0.700 to 0.800)"]
    # the mean goes from 0.4 to 0.85, and passes 0.75 after 7/9 of 512 rollouts
    better = ["0.850 (0.800 to 0.900)", "+0.100 (+0.100 to +0.100)", "2 of 2 seeds", "398", "512"]
    assert cells[3] == ["better", *better]
    worse = ["0.720 (0.700 to 0.740)", "-0.030 (-0.100 to +0.040)", "1 of 2 seeds", "not reached", "512"]
    assert cells[4] == ["worse", *worse]


def test_methods_prints_a_table_of_every_method(capsys):
    lines = said(capsys, "methods")[1].splitlines()
    assert max(map(len, lines)) <= 120
    assert "\x1b" not in "".join(lines)
    first = [line.split(" ", 1)[0] for line in lines]
    for method in METHODS:
        assert first.count(method.name) == 1
        assert all(word in " ".join(lines) for word in method.summary.split())


def test_a_pipe_that_closes_is_quiet():
    with subprocess.Popen([*COMMAND, "methods"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        run.stdout.close()
        assert run.stderr.read() == b""
    assert run.returncode == 0


def test_the_help_says_what_to_type(capsys):
    assert said(capsys, "--version") == (0, f"budgetalloc {ba.__version__}\n", "")
    status, text, errors = said(capsys, "--help")
    assert (status, errors) == (0, "")
    assert all(f"    {command} " in text for command in COMMANDS)
    for command in COMMANDS:
        status, text, _ = said(capsys, command, "--help")
        examples = textwrap.dedent(text.split("examples:\n")[1]).splitlines()
        assert status == 0
        assert examples
        assert all(line.startswith(f"budgetalloc {command}") for line in examples)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["report"], "the following arguments are required: RUN"),
        (["report", "LOG", "--seeds", "0"], "argument --seeds: '0': use a whole number from 1 to 10,000"),
        (["report", "LOG", "--steps", "-3"], "argument --steps: "),
        (["replay", "LOG", "--rollouts", "1.5"], "argument --rollouts: '1.5': use a whole number"),
        (["report", "LOG", "--reward", "a=b"], "argument --reward: 'a=b': use a number as the weight, such as a=0.5"),
        (["recipe", "a", "b"], "unrecognized arguments: b"),
        (["report", "LOG", "--seeds", "9" * 5000], "use a whole number from 1 to 10,000"),
        (["report", "LOG", "--workers", "1025"], "argument --workers: '1025': use a whole number from 1 to 1,024"),
        (["demo", "--seed", "4294967296"], "argument --seed: '4294967296': use a whole number from 0 to 4,294,967,195"),
        (["demo", "--learning-rate", "nan"], "argument --learning-rate: 'nan': use a number that is not negative"),
        (["demo", "--learning-rate", "-1"], "argument --learning-rate: '-1': use a number"),
        (["check"], "the following arguments are required: SCRIPT"),
    ],
)
def test_wrong_usage_is_status_2(words, text, log, capsys):
    status, out, errors = said(capsys, *[log if word == "LOG" else word for word in words])
    assert (status, out) == (2, "")
    assert text in errors.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["report", "NONE"], "there is no such file or folder"),
        (["replay", "EMPTY"], "EMPTY"),
        (["report", "SEVERAL"], "holds 2 logs. Give one of them:"),
        (["report", "LOG", "--policy", "unifrm"], "policy 'unifrm' is unknown, did you mean uniform?"),
        (["replay", "LOG", "--policy", "dump"], "needs the function domain_of="),
        (["replay", "LOG", "--steps", "999"], "the log has 768"),
        (["replay", "LOG", "--rollouts", "1000000"], "1000000 rollouts a step: the whole log has 768"),
        (["replay", "LOG", "--reward-range", "1", "0"], "reward_range=(1.0, 0.0)"),
        (["replay", "LOG", "--config", "NONE"], "No such file or directory"),
        (["replay", "LOG", "--config", "BAD"], "bad.yaml: rolouts= is unknown"),
        (["replay", "LOG", "--config", "PACED"], "the log has 768"),
        (["replay", "LOG", "--config", "PACED", "--rollouts", "64"], "--rollouts 64: the pacing in"),
        (["replay", "LOG", "--config", "COST"], "c.yaml: callback.cost: a replay has neither domains, nor costs"),
        (["demo", "--config", "PACED"], "TRL generates 256 rollouts at every step"),
        (["demo", "--config", "BAD"], "bad.yaml: rolouts= is unknown"),
        (["demo", "--config", "NONE"], "No such file or directory"),
        (["demo", "--config", "FOLDER"], "Is a directory"),
    ],
)
def test_an_error_is_one_line_and_status_1(words, text, log, tmp_path, capsys):
    (tmp_path / "bad.yaml").write_text("policy: uniform\nbudget: {rolouts: 64}\n")
    (tmp_path / "c.yaml").write_text("callback: {cost: tokens}\n")
    (tmp_path / "EMPTY").write_text("")
    (tmp_path / "several").mkdir()
    for name in ("one.jsonl", "other.jsonl"):
        (tmp_path / "several" / name).write_bytes(log.read_bytes())
    names = {"LOG": log, "PACED": ROOT / "configs" / "paced.yaml", "FOLDER": tmp_path}
    files = {"NONE": "none", "BAD": "bad.yaml", "EMPTY": "EMPTY", "SEVERAL": "several", "COST": "c.yaml"}
    names |= {key: tmp_path / file for key, file in files.items()}
    status, out, errors = said(capsys, *[names.get(word, word) for word in words])
    assert (status, out) == (1, "")
    assert errors.startswith(f"budgetalloc {words[0]}: ")
    assert errors.count("\n") == 1
    assert text in errors


def test_a_result_that_cannot_be_written_is_one_line_and_status_1(log, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    status, _, errors = said(capsys, "report", log, "--no-replay", "--html", tmp_path / "file" / "page.html")
    assert (status, errors.count("\n")) == (1, 1)


def test_what_is_missing_is_named_with_how_to_install_it(tmp_path):
    run = without_extras(["demo", "--steps", "1", "--out", str(tmp_path / "out")])
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (1, "", 1)
    assert "pip install 'budgetalloc[demo]'" in run.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_log_without_pandas_names_the_extra(log):
    run = without_extras(["report", str(log)])
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (1, "", 1)
    assert "ba.Ledger needs pandas" in run.stderr
    assert "pip install 'budgetalloc[logs]'" in run.stderr


def test_a_missing_ray_is_named_before_the_log_is_read(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    status, out, errors = said(capsys, "replay", "no such log", "--workers", "ray")
    assert (status, out) == (1, "")
    assert "pip install 'budgetalloc[ray]'" in errors


def test_ctrl_c_is_one_line_and_status_130(tmp_path):
    """The signal comes while the command waits for its file, a pipe without a writer."""
    os.mkfifo(tmp_path / "never.yaml")
    command = [*COMMAND, "demo", "--config", str(tmp_path / "never.yaml")]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run,
        open(tmp_path / "never.yaml", "w"),  # opens only once the other end does
    ):
        run.send_signal(signal.SIGINT)
        out, errors = run.communicate(timeout=120)
    words = "Nothing was written; the same command starts again."
    assert (run.returncode, out, errors) == (130, "", f"budgetalloc demo: stopped by Ctrl-C. {words}\n")


def test_report_says_what_is_true_of_the_log(log, tmp_path, capsys):
    page = tmp_path / "pages" / "report.html"
    words = ["--policy", "uniform", "--policy", "knapsack", "--seeds", 2, "--workers", 1, "--html", page]
    status, out, errors = said(capsys, "report", log, "--json", *words)
    answer = json.loads(out)
    assert (status, errors) == (0, f"Written: {page}\n")
    assert (answer["version"], answer["kind"], answer["rollouts"]) == (3, "ledger", 12 * 64)
    assert (answer["share_all_fail"], answer["share_all_pass"], answer["share_mixed"]) == (0.25, 0.25, 0.5)
    assert answer["wasted_tokens"] == 12 * 32 * 10
    assert [row["policy"] for row in answer["policies"]] == ["uniform", "knapsack"]
    assert page.read_text().lstrip().lower().startswith("<!doctype html>")
    status, out, errors = said(capsys, "report", log, "--no-replay")
    assert (status, errors) == (0, "")
    assert "50.0 % of the rollouts gave no gradient under a group baseline" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 120


def test_two_runs_are_shown_side_by_side(log, tmp_path, capsys):
    status, out, errors = said(capsys, "report", log, log)
    assert (status, errors) == (0, "")
    assert out.startswith(f"A  {log} (ledger)\nB  {log} (ledger)\n")
    assert "does NOT say which run learned more" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 120
    answer = json.loads(said(capsys, "report", log, log, "--json")[1])
    assert [run["rollouts"] for run in answer["runs"]] == [768, 768]
    assert [each["name"] for each in answer["measured"]] == ["reward of the batches"]
    page = tmp_path / "page.html"
    assert said(capsys, "report", log, log, "--html", page)[0] == 0
    assert "<img" in page.read_text()
    status, out, errors = said(capsys, "report", log, log, "--policy", "uniform")
    assert (status, out) == (1, "")
    assert "--policy is for the report of one run" in errors


@pytest.mark.slow
def test_replay_of_uniform_draws_the_log_again(log, capsys):
    answer = replayed(capsys, log, "--policy", "uniform", "--policy", "knapsack", "--seeds", 3, "--workers", 2)
    uniform, knapsack = answer["policies"]
    assert (answer["step"], uniform["steps"]) == ({"rollouts": 64, "prompts": 16}, 12)
    assert (uniform["mixed"], uniform["modelled"], uniform["mixed_diff"]) == (8.0, 0.0, 0.0)
    assert knapsack["mixed_diff"] == knapsack["mixed"] - 8.0
    assert knapsack["mixed_rollouts"] > uniform["mixed_rollouts"]
    assert answer["settings"]["knapsack"]["policy"].startswith("knapsack(value=mixed_group, belief='posterior'")


def test_replay_in_words_holds_the_table_and_its_limits(log, capsys):
    status, out, errors = said(capsys, "replay", log, "--seeds", 1, "--steps", 3, "--workers", 1)
    lines = out.splitlines()
    assert (status, errors) == (0, "")
    assert lines[1] == "Replayed: 3 steps of 64 rollouts and 16 prompts, 1 seed."
    assert [line.split()[0] for line in lines[4:8]] == ["uniform", "knapsack", "thompson", "adaptive"]
    uniform = ["12.5", "%", "43.8", "%", "50.0", "%", "0.0", "%"]  # 8 of 64; signal; in mixed groups; modelled
    assert lines[4].split()[1:] == uniform
    assert float(lines[7].split()[1]) > 12.5
    assert "learning does not react to the allocation" in " ".join(out.split())
    assert max(map(len, lines)) <= 120


def test_replay_takes_policy_and_budget_from_the_file_and_what_is_typed_from_the_line(log, tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "policy: {name: knapsack, value: pass_at_n}\nbudget: {rollouts: 32, cap: 6}\ncallback: {candidates: 2}\n"
    )
    answer = replayed(capsys, log, "--config", path, "--steps", 2)
    assert [row["policy"] for row in answer["policies"]] == ["uniform", "knapsack"]
    assert answer["step"] == {"rollouts": 32, "prompts": 8}
    assert [each["cap"] for each in answer["settings"].values()] == [6, 6]
    assert answer["settings"]["knapsack"]["candidates"] == 2
    typed = ["--rollouts", 16, "--prompts", 4, "--policy", "knapsack"]
    answer = replayed(capsys, log, "--config", path, "--steps", 2, *typed)
    assert [row["policy"] for row in answer["policies"]] == ["knapsack", f"knapsack ({path})"]
    assert answer["step"] == {"rollouts": 16, "prompts": 4}


OWN = """
import numpy as np
import budgetalloc as ba

def third(belief, counts_N):
    return np.exp(-((belief.mean - 1 / 3) ** 2) / 0.02)[:, None] * ba.mixed_group(belief, counts_N)

def thirds(*, seed=0):
    return ba.knapsack(value=third, seed=seed)
"""


def test_a_policy_of_a_file_is_replayed_by_name_from_the_line_and_from_yaml(log, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(OWN)
    Path("mine.yaml").write_text("policy: mine.py:thirds\ncallback: {candidates: 1}\n")
    words = ["--policy", "uniform", "--policy", "mine.py:thirds", "--seeds", 2, "--workers", 2, "--json"]
    rows = json.loads(said(capsys, "replay", log, *words)[1])["policies"]
    assert [row["policy"] for row in rows] == ["uniform", "mine.py:thirds"]
    assert json.loads(said(capsys, "report", log, *words)[1])["policies"][1]["policy"] == "mine.py:thirds"
    of_file = replayed(capsys, log, "--config", "mine.yaml")
    assert of_file["settings"]["mine.py:thirds"]["policy"].startswith("knapsack(value=third")
    status, _, errors = said(capsys, "replay", log, "--policy", "mine.py:halves")
    assert (status, errors) == (1, "budgetalloc replay: policy='mine.py:halves': mine.py has no halves.\n")


def test_replay_attaches_the_policy_as_the_file_says(log, tmp_path, capsys):
    """Plain GRPO gives 4 prompts of a batch 16 rollouts each; over all 16 prompts each gets the 4 that were logged."""
    path = tmp_path / "mine.yaml"
    path.write_text("policy: uniform\ncallback: {candidates: all}\n")
    words = ["--prompts", 4, "--rollouts", 64, "--steps", 1, "--seeds", 2]
    batch, everything = replayed(capsys, log, "--config", path, *words)["policies"]
    assert batch["modelled"] == 0.75
    assert (everything["modelled"], everything["mixed"]) == (0.0, 8.0)


def test_replay_follows_the_pacing_of_the_file(log, tmp_path, capsys):
    path = tmp_path / "paced.yaml"
    pacing = "{name: phases, rollouts: 480, steps: 6, low: 8, parts: [[3, 1], [3, 4]]}"
    path.write_text(f"policy: knapsack\npacing: {pacing}\n")
    for words, expected in (([], (6, 480.0)), (["--steps", 3], (3, 96.0))):
        rows = replayed(capsys, log, "--config", path, *words)["policies"]
        assert [(row["steps"], row["rollouts"]) for row in rows] == [expected] * 2


@pytest.mark.parametrize(
    ("rewards", "logged", "words", "expected", "note"),
    [
        ([-1.0, 2.0, -1.0, 0.2], None, [], 5.4 / 8, "from -1 to 2"),
        ([-1.0, 2.0, -1.0, 0.2], None, ["--reward-range", "-2", "2"], 6.05 / 8, None),
        ([0.0, 2.0, 0.0, 1.0], (0.0, 4.0), [], 2.75 / 8, None),
        ([2.0, 2.0, 2.0, 2.0], None, [], 1.0, "from 0 to 2 "),
    ],
    ids=["observed", "asked for", "of the ledger", "constant"],
)
def test_rewards_are_mapped_by_their_range(tmp_path, capsys, rewards, logged, words, expected, note):
    writer = ba.LedgerWriter(tmp_path / "ledger.jsonl")
    for step in range(4):
        columns = [1] * 8, [0.5] * 8, [4] * 8
        writer.append(step, ["a"] * 4 + ["b"] * 4, rewards + [2.0] * 4, *columns, reward_range=logged)
    answer = replayed(capsys, tmp_path / "ledger.jsonl", "--policy", "uniform", *words)
    assert answer["policies"][0]["reward"] == pytest.approx(expected)
    assert [note] * bool(note) == [text[8:20] for text in answer["notes"] if "taken as the range" in text]


def test_a_report_counts_near_ties_by_the_resolution_asked_for(tmp_path, capsys):
    rows = [f"{step},{step % 2},{0.5 + 0.001 * at * (1 + 99 * step)}\n" for step in range(2) for at in range(4)]
    (tmp_path / "log.csv").write_text("step,prompt_id,reward\n" + "".join(rows))
    words = ["report", tmp_path / "log.csv", "--no-replay", "--json"]
    shares = [json.loads(said(capsys, *words, *more)[1])["share_mixed"] for more in ([], ["--resolution", "0.01"])]
    assert shares == [1.0, 0.5]


def test_success_is_the_column_that_is_asked_for(tmp_path, capsys):
    """Each rollout has a format reward of 0.5, and accuracy. Without accuracy it has failed, whatever its total."""
    rows = [
        f"{step},{name},{x + 0.5},{x}\n" for step in range(3) for name, x in [("a", 0)] * 4 + [("b", 0), ("b", 1)] * 2
    ]
    (tmp_path / "log.csv").write_text("step,prompt_id,total,accuracy\n" + "".join(rows))
    words = [tmp_path / "log.csv", "--reward", "total", "--success", "accuracy", "--json"]
    answer = json.loads(said(capsys, "report", *words, "--no-replay")[1])
    assert (answer["share_all_fail"], answer["share_all_pass"], answer["share_mixed"]) == (0.5, 0.0, 0.5)
    assert replayed(capsys, *words, "--policy", "uniform")["policies"][0]["mixed"] == 1.0


def test_recipes_are_listed_and_printed(capsys):
    status, out, errors = said(capsys, "recipe")
    assert (status, errors) == (0, "")
    named = {name: Path(file).name for name, file in RECIPES.items()}
    assert dict(line.split()[:2] for line in out.split("\n\n")[0].splitlines()) == named
    for name, file in RECIPES.items():
        status, out, errors = said(capsys, "recipe", name)
        assert (status, out, errors) == (0, (ROOT / file).read_text(), "")
    status, out, errors = said(capsys, "recipe", "trll")
    assert (status, out, errors.count("\n")) == (1, "", 1)
    assert "the recipe 'trll' is unknown, did you mean trl? Use one of first_run, trl, " in errors


def test_no_recipe_hides_a_package_that_it_imports():
    """A file art.py next to the user's script would be what `import art` finds."""
    for file in RECIPES.values():
        if file.endswith(".py"):
            tree = ast.parse((ROOT / file).read_text())
            imports = [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
            imports += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
            assert Path(file).stem not in {name.split(".")[0] for name in imports}


def test_verls_recipe_stops_without_a_gpu():
    """Ray would wait for one without a word."""
    run = subprocess.run(
        ["bash", ROOT / RECIPES["verl"]], env=os.environ | {"GPUS": "0"}, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.startswith("train.sh: no GPU was found")


def test_every_script_and_every_configuration_is_a_recipe():
    """A wheel has no other way to the files of integrations/ and configs/."""
    scripts = [path for kind in ("py", "sh", "yaml") for path in (ROOT / "integrations").rglob(f"*.{kind}")]
    files = {path.relative_to(ROOT).as_posix() for path in [*scripts, *(ROOT / "configs").iterdir()]}
    assert files == set(RECIPES.values())


def test_a_recipe_in_the_package_is_before_one_in_the_clone(monkeypatch, tmp_path):
    """In a wheel the two folders are in budgetalloc/cli/recipes."""
    file = tmp_path / "cli/recipes" / RECIPES["trl"]
    file.parent.mkdir(parents=True)
    file.write_text("from the wheel\n")
    monkeypatch.setattr("budgetalloc.cli.commands.recipe.__file__", str(tmp_path / "cli/commands/recipe.py"))
    assert text_of("trl") == "from the wheel\n"


@pytest.mark.slow
def test_a_bar_is_shown_at_a_terminal_only(log):
    """The other tests see an empty stderr, which is no terminal."""
    fcntl, pty, termios = (pytest.importorskip(name) for name in ("fcntl", "pty", "termios"))
    watcher, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, b"\x18\x00\x50\x00\x00\x00\x00\x00")  # 24 lines of 80
    command = [*COMMAND, "replay", str(log), "--steps", "4", "--seeds", "150", "--json"]  # the bar comes after a second
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal) as run:
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # a terminal raises it once it has no writer
            while part := os.read(watcher, 4096):
                shown += part
        out = run.stdout.read()
    os.close(watcher)
    assert run.returncode == 0
    assert json.loads(out)["version"] == 1
    assert b"replaying" in shown
    assert shown.endswith(b"\r")  # wiped at its end


def test_a_shell_completes_commands_and_policies(log):
    pytest.importorskip("argcomplete")
    for line, expected in [("budgetalloc re", "report replay"), (f"budgetalloc replay {log} --policy kn", "knapsack")]:
        asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": " "}
        code = "import os, sys; os.dup2(1, 8); from budgetalloc.cli.__main__ import main; main([])"
        run = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True, check=False
        )
        assert set(expected.split()) <= set(run.stdout.split()), run.stderr


@pytest.mark.slow
def test_the_demo_says_before_it_trains_that_it_cannot_draw(tmp_path, capsys, monkeypatch):
    from budgetalloc.cli.testbed import train as module

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    told = []

    def train(*_, **__):
        told.append(capsys.readouterr().err)
        return [module.Point(*[1] * len(module.Point._fields))]

    monkeypatch.setattr(module, "train", train)
    status, out, _ = said(capsys, "demo", "--steps", 1, "--seeds", 1, "--workers", 1, "--out", tmp_path / "out")
    assert status == 0
    assert "pip install 'budgetalloc[logs]'" in told[0]
    assert "curves.png" not in out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"results.json", "table.md"}


@pytest.mark.slow
def test_demo_holds_the_policy_of_a_file_against_uniform(tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    budget = "budget: {rollouts: 256, floor: 4, cap: 16}\ncallback: {candidates: 1}\n"
    path.write_text(f"policy: {{name: thompson, seed: 3}}\n{budget}")
    words = ["--steps", 1, "--seeds", 1, "--workers", 1, "--config", path, "--out", tmp_path / "out"]
    printed = said(capsys, "demo", *words)[1]
    assert "seed=20" in printed  # each training has a seed of its own
    assert set(json.loads((tmp_path / "out" / "results.json").read_text())) == {"uniform", "thompson"}
    sizes = (
        ba.Ledger.read(tmp_path / "out" / "thompson_20.jsonl")
        .frame.groupby(["step", "prompt"])
        .prompt.transform("size")
        .to_numpy()
    )
    assert 4 <= sizes.min() < 8 < sizes.max() <= 16


@pytest.fixture(scope="module")
def recipe():
    """The module integrations/trl/train.py."""
    spec = importlib.util.spec_from_file_location("train", ROOT / "integrations" / "trl" / "train.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_recipe_names_a_mistake_in_its_file(recipe, tmp_path, monkeypatch):
    path = tmp_path / "mine.yaml"
    monkeypatch.setattr(sys, "argv", ["train.py", str(path)])
    path.write_text("policy: adaptive\nmodel: m\ndataset: d\ncallbak: {}\n")
    with pytest.raises(SystemExit, match="the section callbak is unknown, did you mean callback"):
        recipe.main()
    path.write_text("policy: adaptive\nmodel: m\ndataset: d\ngrpo: {max_step: 3}\n")
    with pytest.raises(SystemExit, match=r"mine.yaml: grpo.max_step is unknown, did you mean max_steps\?"):
        recipe.main()


@pytest.mark.slow
def test_recipe(recipe, tmp_path, monkeypatch):
    """The recipe with its own YAML, changed only where a user must: model, data and sizes. Then it resumes."""
    rows = [row for row in pool(20) if not skill_of(row["prompt_id"]).is_trap]
    data = tmp_path / "train.jsonl"
    data.write_text("".join(json.dumps({"prompt": r["prompt"], "answer": answer(r["prompt"])}) + "\n" for r in rows))
    config = yaml.safe_load((ROOT / "configs" / "trl_adaptive.yaml").read_text())
    config |= {"model": str(WEIGHTS), "dataset": str(data), "callback": {"ledger": str(tmp_path / "ledger.jsonl")}}
    sizes = {"max_completion_length": 5, "max_steps": 4, "save_steps": 2}
    config["grpo"] |= {"output_dir": str(tmp_path / "run"), **sizes}
    path = tmp_path / "config.yaml"
    for steps, more in ((4, []), (6, ["--resume"])):
        config["grpo"]["max_steps"] = steps
        path.write_text(yaml.safe_dump(config))
        monkeypatch.setattr(sys, "argv", ["train.py", str(path), *more])
        recipe.main()
    ledger = ba.Ledger.read(tmp_path / "ledger.jsonl")
    assert sorted(set(ledger.frame.step.tolist())) == list(range(6))
    assert (
        ledger.frame.reward.to_numpy().mean() > 0.2
    )  # the model half knows its skills: the recipe's verifier does score it
    assert (tmp_path / "run" / "model.safetensors").exists()

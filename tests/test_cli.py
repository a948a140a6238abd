"""The command line, and the recipe of integrations/trl, as a user runs them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import budgetalloc as ba
from budgetalloc.cli import main
from budgetalloc.methods import METHODS
from budgetalloc.testbed.skills import answer, pool, skill_of
from budgetalloc.testbed.train import WEIGHTS

ROOT = Path(__file__).parents[1]


def test_demo_end_to_end(tmp_path, capsys):
    """Four steps of the real demo: both runs, the table, the picture, the results and the ledgers."""
    assert main(["demo", "--steps", "4", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert (tmp_path / "table.md").read_text().strip() in printed
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    results = json.loads((tmp_path / "results.json").read_text())
    for name in ("uniform", "adaptive"):
        assert results[name][0]["rollouts"] == 0
        assert results[name][-1]["rollouts"] == 4 * 256
        ledger = ba.Ledger.read(tmp_path / f"{name}_ledger.jsonl")
        assert len(ledger.ids_R) == 4 * 256
        assert ledger.lengths_R.sum() == results[name][-1]["tokens"]
        sizes = set(ledger.counts_R.tolist())  # adaptive: groups of one, of as many prompts as there are rollouts
        assert sizes == {8} if name == "uniform" else 1 in sizes and max(sizes) < 8
    assert results["uniform"][0]["success"] == results["adaptive"][0]["success"]


def test_usage(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.strip() == f"budgetalloc {ba.__version__}"
    with pytest.raises(SystemExit) as stop:
        main(["nonsense"])
    assert stop.value.code == 2


def test_methods_prints_a_table_of_every_method(capsys):
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 120
    assert "\x1b" not in "".join(lines)
    first = [line.split(" ", 1)[0] for line in lines]
    for method in METHODS:
        assert first.count(method.name) == 1
        assert all(word in " ".join(lines) for word in method.formula.split())


def test_methods_as_json(capsys):
    assert main(["methods", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == [method.name for method in METHODS]
    assert rows["adaptive"]["needs"]["baseline"] == "posterior"
    assert rows["ar3po"]["needs"]["rounds"] is True
    assert rows["vade"]["source"] == "arXiv 2511.18902"


def test_methods_into_a_pipe_that_closes_is_quiet():
    command = [sys.executable, "-m", "budgetalloc.cli", "methods"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        run.stdout.close()
        assert run.stderr.read() == b""
    assert run.returncode == 0


def test_methods_loads_nothing_heavy():
    code = (
        "import sys; from budgetalloc.cli import main; main(['methods']);"
        "print([m for m in ('torch', 'trl', 'ortools', 'matplotlib') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"


def test_recipe(tmp_path):
    """The recipe with its own YAML, changed only where a user must: model, data and sizes. Then it resumes."""
    rows = [row for row in pool(20) if not skill_of(row["prompt_id"]).is_trap]
    data = tmp_path / "train.jsonl"
    data.write_text("".join(json.dumps({"prompt": r["prompt"], "answer": answer(r["prompt"])}) + "\n" for r in rows))
    config = yaml.safe_load((ROOT / "configs" / "trl_adaptive.yaml").read_text())
    config |= {"model": str(WEIGHTS), "dataset": str(data), "callback": {"ledger": str(tmp_path / "ledger.jsonl")}}
    sizes = {"max_completion_length": 5, "max_steps": 4, "save_steps": 2, "use_cpu": True, "bf16": False}
    config["grpo"] |= {"output_dir": str(tmp_path / "run"), **sizes}
    path = tmp_path / "config.yaml"
    for steps, more in ((4, []), (6, ["--resume"])):
        config["grpo"]["max_steps"] = steps
        path.write_text(yaml.safe_dump(config))
        command = [sys.executable, str(ROOT / "integrations" / "trl" / "train.py"), str(path), *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
    ledger = ba.Ledger.read(tmp_path / "ledger.jsonl")
    assert sorted(set(ledger.step_R.tolist())) == list(range(6))
    assert ledger.rewards_R.mean() > 0.2  # the model half knows its skills: the recipe's verifier does score it
    assert (tmp_path / "run" / "model.safetensors").exists()

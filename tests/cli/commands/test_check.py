"""`budgetalloc check` on scripts with TRL's real trainer and the model of tiny_model.py."""

from pathlib import Path

import pytest

from budgetalloc.cli.__main__ import main

pytestmark = pytest.mark.slow  # TRL is loaded
HELPERS = Path(__file__).parents[2] / "trl"
SCRIPT = """
import sys
sys.path.insert(0, HELPERS)
from tiny_model import SETTINGS, fresh_model, low_digit, make_tokenizer, rows
from trl import GRPOConfig, GRPOTrainer
from budgetalloc.trl import AdaptiveGRPOCallback

def tidy(completions, **_):
    return [0.5] * len(completions)

class Trainer(GRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        raise AssertionError("a rollout was generated")

def main(first=low_digit, *others, **options):
    trainer = Trainer(
        model=fresh_model(),
        processing_class=make_tokenizer(),
        reward_funcs=[first, *others],
        args=GRPOConfig(sys.argv[1], **SETTINGS),
        train_dataset=rows(),
    )
    if options.pop("attached", True):
        trainer.add_callback(AdaptiveGRPOCallback(trainer, **options))
    trainer.train()
    raise AssertionError("the script went on after train()")

"""


@pytest.fixture
def checked(tmp_path, capfd):
    """Exit status, stdout by name and the last line of stderr of a check of SCRIPT with these last lines."""

    def check(end, *options):
        path = tmp_path / "train.py"
        path.write_text(SCRIPT.replace("HELPERS", repr(str(HELPERS))) + end)
        status = main(["check", *options, str(path), str(tmp_path / "run")])
        printed = capfd.readouterr()
        found, name = {}, ""
        for line in printed.out.splitlines():
            name = line[:12].strip() or name
            found[name] = f"{found.get(name, '')} {line[12:]}".strip()
        return status, found, (printed.err.splitlines() or [""])[-1]

    return check


def test_it_says_what_the_training_would_do_and_stops_there(checked, tmp_path):
    status, found, _ = checked(f"main(ledger={str(tmp_path / 'ledger.jsonl')!r}, cap=8)")
    assert status == 0
    assert found["policy"] == "adaptive(seed=0)"
    assert found["success"] == "low_digit"
    assert found["first step"].startswith("16 rollouts of 8 prompts among 24, 2 of each.")
    assert found["changed"].startswith(f"ledger='{tmp_path}")
    assert "cap=8" in found["changed"]
    assert not (tmp_path / "ledger.jsonl").exists()


GOES_ON = {
    "finally": "try:\n    main()\nfinally:\n    SAVED.write_text('untrained')",
    "except": "try:\n    main()\nexcept BaseException:\n    SAVED.write_text('untrained')",
    "atexit": "import atexit\natexit.register(SAVED.write_text, 'untrained')\nmain()",
    "a context": "from contextlib import ExitStack\nwith ExitStack() as stack:\n"
    "    stack.callback(SAVED.write_text, 'untrained')\n    main()",
    "a finalizer": "import weakref\nclass Run: pass\nkept = Run()\n"
    "weakref.finalize(kept, SAVED.write_text, 'untrained')\nmain()",
    "a thread": "import threading\nended = threading.Event()\n"
    "threading.Thread(target=lambda: (ended.wait(), SAVED.write_text('untrained'))).start()\n"
    "try:\n    main()\nfinally:\n    ended.set()",
    "a training in a thread": "import threading\ndef work():\n    try:\n        main()\n    finally:\n"
    "        SAVED.write_text('untrained')\nthread = threading.Thread(target=work)\nthread.start()\nthread.join()",
}


@pytest.mark.parametrize("end", GOES_ON.values(), ids=GOES_ON)
def test_nothing_of_the_script_runs_after_train_and_nothing_is_left_behind(checked, tmp_path, end):
    saved = tmp_path / "model.txt"
    saved.write_text("trained for a week")
    status, found, _ = checked(f"from pathlib import Path\nSAVED = Path({str(saved)!r})\n{end}")
    assert (status, found["policy"]) == (0, "adaptive(seed=0)")
    assert saved.read_text() == "trained for a week"
    assert {path.name for path in tmp_path.iterdir()} == {"model.txt", "train.py"}


def test_what_the_script_itself_wrote_stays(checked, tmp_path):
    assert (
        checked("from pathlib import Path\nPath(sys.argv[1]).mkdir()\nPath(sys.argv[1], 'x').touch()\nmain()")[0] == 0
    )
    assert (tmp_path / "run" / "x").exists()


def test_a_script_that_dies_has_status_1(checked):
    assert checked("import os\nos._exit(3)")[:2] == (1, {})


def test_a_policy_of_the_command_line_takes_the_place_of_the_scripts_own(checked, tmp_path):
    (tmp_path / "mine.py").write_text("import budgetalloc as ba\ndef mine(): return ba.knapsack(discount=0.5)\n")
    status, found, _ = checked("main(policy='uniform')", "--policy", f"{tmp_path}/mine.py:mine")
    assert (status, found["policy"].split("(")[0]) == (0, "knapsack")
    assert found["changed"].startswith("nothing")


@pytest.mark.parametrize(
    ("end", "name", "text"),
    [
        ("main(policy='uniform')", "first step", "16 rollouts of 4 prompts among 4, 4 of each."),
        ("main(policy='uniform')", "changed", "nothing"),
        ("main(policy='dapo')", "first step", "16 rollouts of 2 prompts among 12, 8 of each, and more once these"),
        (
            "main(policy='knapsack', candidates=2, floor=2)",
            "first step",
            "16 rollouts of 8 prompts among 8, 2 of each",
        ),
        ("main(low_digit, tidy)", "success", "is chosen once, from the rewards of low_digit, tidy: "),
        ("main(low_digit, tidy, success='low_digit')", "success", "low_digit"),
        ("main(success=0.5)", "success", "a total reward of at least 0.5"),
        ("main(low_digit, tidy, success=lambda rewards: rewards['tidy'])", "success", "what lambda "),
    ],
)
def test_what_it_says(checked, end, name, text):
    status, found, _ = checked(end)
    assert status == 0
    assert found[name].startswith(text)


def test_it_tries_the_reward_functions_on_made_up_answers(checked):
    assert "rewards" not in checked("main()")[1]
    status, found, _ = checked("main(low_digit, tidy)")
    assert (status, found["rewards"]) == (0, "tidy pays 0.5 for each of 80 answers, right, wrong and empty")


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (
            "main(floor=16, candidates=1)",
            "4 prompts at floor=16 need 64 rollouts. Use floor=4 or floor=0 or",
        ),
        ("main(success='accuracy')", "success='accuracy': the trainer has no reward function of this name"),
        ("main(attached=False)", "attaches no AdaptiveGRPOCallback. Before train(), write trainer.add_callback("),
        ("print(sys.argv)", "ended without a call of GRPOTrainer.train(). Give the script that trains."),
        ("sys.exit(0)", "ended without a call of GRPOTrainer.train(). Give the script that trains."),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import nothing_like_it", "ModuleNotFoundError: No module named 'nothing_like_it'"),
    ],
)
def test_what_would_not_train_has_status_1(checked, end, text):
    status, found, last = checked(end)
    assert status == 1
    assert text in last
    assert "first step" not in found


def test_the_script_ends_itself_with_its_own_status(checked):
    with pytest.raises(SystemExit) as ended:
        checked("sys.exit('no data')")
    assert ended.value.code == "no data"


def test_a_script_that_is_not_there(capsys):
    assert main(["check", "none.py"]) == 1
    assert (
        capsys.readouterr().err == "budgetalloc check: none.py: there is no such file. Give the script that trains.\n"
    )


def test_the_arguments_of_the_script_and_its_folder_are_its_own(checked, tmp_path):
    (tmp_path / "beside_it.py").write_text("cap = 4")
    status, found, _ = checked("import beside_it\nassert len(sys.argv) == 2\nmain(cap=beside_it.cap)")
    assert (status, found["changed"][:5]) == (0, "cap=4")


def test_the_training_of_another_trainer_is_left_out(checked):
    end = """
import transformers
arguments = transformers.TrainingArguments(sys.argv[1], use_cpu=True, report_to="none")
transformers.Trainer(fresh_model(), arguments, train_dataset=rows()).train()
main()
"""
    status, found, last = checked(end)
    assert (status, last) == (0, "Trainer.train() is left out.")
    assert "first step" in found

"""Names that a person types: a misspelt one is refused, and the nearest of all valid ones named."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import budgetalloc as ba
from budgetalloc.cli.commands.recipe import RECIPES
from budgetalloc.cli.config import SECTIONS, Config
from budgetalloc.cli.parser import parser
from budgetalloc.contrib.pacing import pacing_plan
from budgetalloc.methods.table import METHODS, method_of
from budgetalloc.policies import growing, retrying, sampled, sequential
from budgetalloc.training.options import Options, check_node
from budgetalloc.training.policy_like import resolve_policy


def misspelt(name: str) -> list[str]:
    """One letter more, one wrong, two exchanged and, in longer names, one less."""
    at = len(name) // 2
    found = [f"{name[:at]}z{name[at:]}", f"{name[:at]}z{name[at + 1 :]}"]
    found += [name[: at - 1] + name[at] + name[at - 1] + name[at + 1 :]]
    return [x for x in found + ([name[:at] + name[at + 1 :]] if len(name) > 5 else []) if x != name]


def suggested(name: str, known: list[str], use: Callable[[str], Any]) -> None:
    """Each misspelling is answered with the name, or with another that it is as near to."""
    for word in misspelt(name):
        if word in known:
            continue
        with pytest.raises((ba.InputError, AttributeError, SystemExit)) as caught:
            use(word)
        said = re.findall(r"did you mean ([^?]+)\?", str(caught.value))
        assert said, (word, str(caught.value))
        assert said == [name] or _distance(word, said[0]) <= _distance(word, name), (word, said)


def _distance(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


METHOD_NAMES = [row.name for row in METHODS]


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_policies_by_name_and_their_arguments(name: str) -> None:
    suggested(name, METHOD_NAMES, resolve_policy)
    row = method_of(name)
    arguments = list(inspect.signature(row.build).parameters)
    for argument in (x for x in arguments if len(x) > 2):
        suggested(argument, arguments, lambda word: resolve_policy({"name": name, word: 1}))
        suggested(argument, arguments, lambda word: row.build(**{word: 1}))


@pytest.mark.parametrize(
    "function",
    [
        *(ba.uniform, ba.knapsack, ba.thompson, ba.adaptive, sampled, growing, retrying, sequential),
        *(ba.Budget, ba.Needs, ba.BetaEstimator, ba.Learner, ba.Replay, ba.LedgerWriter),
        *(ba.compare, ba.comparisons, ba.simulate, ba.certify, ba.proportional),
        *(ba.group_advantages, ba.Ledger.read),
    ],
)
def test_keyword_arguments_of_functions_and_classes(function: Any) -> None:
    names = [x for x in inspect.signature(function).parameters if len(x) > 3]
    for name in names:
        suggested(name, names, lambda word: function(**{word: 1}))
    with pytest.raises(TypeError):  # too many, or a missing one, are Python's own errors
        function(*range(30))


def test_options_of_session_callback_and_node() -> None:
    own = ["pool", "ledger", "texts", "at_once", "trainer_scale", "quiet", "parts"]
    names = [*Options.names(trl=False), *own]
    for name in names:
        suggested(name, names, lambda word: ba.Session("adaptive", ["reward"], **{word: 1}))
    trl = ["policy", "prompt_id", "features", "ledger", "parts", "allow_dataset_change"]
    names = [*Options.names(), *trl]
    for name in names:
        use = lambda word: Options.resolve(ba.Needs(), "group", {word: 1}, others=trl)  # noqa: E731
        suggested(name, names, use)
    names = ["policy", "ledger", *Options.names(trl=False)]
    for name in names:
        suggested(name, names, lambda word: check_node({word: 1}, ["ledger"]))


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("scale", ("none", "group", "batch", "whiten")),
        ("weight", ("rollout", "prompt")),
        ("baseline", ("group", "posterior", "policy", "batch")),
        ("metrics", ("main",)),
        ("cost", ("tokens", "seconds")),
        ("mixture", ("learn", "adept")),
    ],
)
def test_values_of_options(option: str, values: tuple[str, ...]) -> None:
    given = {"domain": {"a": "math"}} if option == "mixture" else {}
    for value in values:
        use = lambda word: ba.Session(  # noqa: E731
            "adaptive", ["reward"], pool=["a"], **given, **{option: word}
        )
        with pytest.raises(ba.InputError, match=f"did you mean {value}"):
            use(misspelt(value)[1])


def test_functions_by_name_where_a_function_is_wanted() -> None:
    with pytest.raises(ba.InputError, match=r"did you mean ba.ortools\?"):
        ba.knapsack(solver="ortools")  # type: ignore[arg-type]
    with pytest.raises(ba.InputError, match=r"did you mean ba.success_gain\?"):
        ba.thompson(value="succes_gain")  # type: ignore[arg-type]
    with pytest.raises(ba.InputError, match=r"did you mean ortools\?"):
        resolve_policy({"name": "knapsack", "solver": "ortols"})
    with pytest.raises(ba.InputError, match=r"\{name: adaptive, rounds: 3\}"):
        resolve_policy("adaptive(rounds=3)")


def test_names_of_a_users_file(tmp_path: Any) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from pathlib import Path\nimport budgetalloc as ba\n\n"
        "with (Path(__file__).parent / 'runs').open('a') as runs:\n    runs.write('x')\n\n\n"
        "def thirds(*, seed=0):\n    return ba.uniform()\n"
    )
    with pytest.raises(ba.InputError, match=r"no thrids, did you mean thirds\?"):
        resolve_policy(f"{file}:thrids")
    assert (tmp_path / "runs").read_text() == "x"  # a file may be slow, and is run once


def test_sections_and_keys_of_a_file_of_settings() -> None:
    for name in SECTIONS:
        suggested(name, list(SECTIONS), lambda word: Config.parse(f"{word}: {{}}"))
    for key in ("floor", "cap", "min_group", "quantum"):
        suggested(key, [], lambda word: Config.parse(f"budget: {{{word}: 1}}"))
    for key in ("prompt_id", "features", "ledger", "baseline"):
        suggested(key, [], lambda word: Config.parse(f"callback: {{{word}: 1}}"))
    for key in ("rollouts", "steps", "quantum", "parts"):
        suggested(key, [], lambda word: pacing_plan({"name": "constant", word: 1}))
    with pytest.raises(ba.InputError, match=r"budget: \{rollouts: 64\}"):
        Config.parse("budget: 64")


def test_commands_their_options_and_recipes(capsys: Any) -> None:
    def run(*words: str) -> None:
        try:
            parser().parse_args(words)
        except SystemExit:
            raise ba.InputError(capsys.readouterr().err) from None

    commands = parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    for name, command in commands.items():
        suggested(name, list(commands), lambda word: run(word))
        options = [x for x in command._option_string_actions if x.startswith("--")]
        for option in options:
            for word in misspelt(option.removeprefix("--")):
                if any(x.startswith(f"--{word}") for x in options):
                    continue  # argparse takes the beginning of an option for it
                with pytest.raises(ba.InputError, match="did you mean --"):
                    run(name, f"--{word}", *(["x"] if name in ("check", "report", "replay") else []))
    from budgetalloc.cli.__main__ import main

    for name in RECIPES:
        for word in misspelt(name):
            assert main(["recipe", word]) == 1 or word in RECIPES
            assert "did you mean" in capsys.readouterr().err


def test_names_of_the_package() -> None:
    for name in ("adaptive", "knapsack", "Session", "AdaptiveGRPOCallback"):
        if hasattr(ba, name):
            suggested(name, ba.__all__, lambda word: getattr(ba, word))
    with pytest.raises(AttributeError, match=r"budgetalloc\.methods\.vade"):
        ba.vade  # noqa: B018

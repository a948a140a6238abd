"""Plain values in the source of a script are found; everything else is unknown, never wrong."""

import ast

import pytest

from budgetalloc.cli.doctor.literals import MOST, UNKNOWN, Source


def value_of(text, before=""):
    source = Source(f"{before}\nRESULT = {text}\n")
    return source.value(ast.parse("RESULT", mode="eval").body)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 4", 9),
        ("-1e-6", -1e-6),
        ("[1, 'a', None, True]", [1, "a", None, True]),
        ("(0, 2.5)", (0, 2.5)),
        ("{'math': (0.3, 0.5)}", {"math": (0.3, 0.5)}),
        ("dict(a=1, b=dict(c=2))", {"a": 1, "b": {"c": 2}}),
        ("32 // 3 % 4 - 1", 1),
        ("SIZE * 2", 16),
        ("{**dict(a=SIZE), 'b': 2} | {'b': 3}", {"a": 8, "b": 3}),
    ],
)
def test_plain_values(text, value):
    assert value_of(text, "SIZE = 8") == value


@pytest.mark.parametrize(
    "before",
    [
        *("x = 1\nx = 2", "for x in range(3): pass", "x = 1\nx += 1", "def f(x=1): pass\nx = 2", "x = x"),
        *("with open('f') as x: pass", "x, y = 1, 2", "if (x := 3): pass", "x = os.environ['A']", "x = args.size"),
        *("x = 'a' * 10**9", "x = 1 / 0", "y = {'a': f()}\nx = {**y}", "x = {None: 1}", "x = dict(**x)", "x = x | x"),
        *("x = {**x}", "x = 1e999 - 1e999", "x = 1e999", "x = 10**40", "x = 0x" + "f" * 5000, "x = dict({}, a=1)"),
        *("x = [f(), 1]", ""),
    ],
)
def test_other_values_are_unknown(before):
    assert value_of("x", before) is UNKNOWN


@pytest.mark.parametrize(
    ("start", "doubled"),
    [
        ("[0]", "[{0}, {0}]"),
        ("{'a': 1}", "{{'a': {0}, 'b': {0}}}"),
        ("{'a': 1}", "{0} | {0}"),
        ("{'a': 1}", "{{**{0}, **{0}}}"),
        ("1", "dict(a={0}, b={0})"),
        ("{'a': 1}", "dict(**{0}, **{0})"),
        ("0", "{0} + {0}"),
        ("0", "-{0} - -{0}"),
        ("10", "{0} * {0}"),
    ],
)
def test_literals_that_double_are_read_as_far_as_the_bound(start, doubled):
    """Each name stands for its predecessor twice: 2^25 entries from 26 lines."""
    lines = [f"x0 = {start}"] + [f"x{n + 1} = {doubled.format(f'x{n}')}" for n in range(25)]
    source = Source("\n".join(lines) + "\nmake(x25, **x25, last=[1])\n")
    assert source.arguments(next(source.calls("make")), "first")["first"] is UNKNOWN
    assert source.left < 0
    assert source.value(ast.parse("x1").body[0].value) is UNKNOWN


def test_characters_count_too():
    source = Source(f"x = {'a' * MOST!r}\ny = [{'b' * (MOST // 4)!r}, 1]\nz = [y, y, y, y]\nmake(y, z, x)")
    first, second, third = source.arguments(next(source.calls("make")), "y", "z", "x").values()
    assert first == ["b" * (MOST // 4), 1]
    assert (second, third) == (UNKNOWN, UNKNOWN)


def test_warnings_of_the_parser_are_not_printed(recwarn):
    Source("x = '\\d'\ny = 1 is 1\n")
    assert not recwarn.list


def test_nothing_is_executed(tmp_path):
    path = tmp_path / "made"
    source = Source(f"x = open({str(path)!r}, 'w')\nGRPOConfig(open({str(path)!r}, 'w'), y=x)\n")
    call = next(source.calls("GRPOConfig"))
    assert source.arguments(call, "output_dir") == {"output_dir": UNKNOWN, "y": UNKNOWN}
    assert not path.exists()


def test_arguments_by_position_by_name_and_in_dictionaries():
    text = "more = dict(b=2, c=f())\nrest = {'d': 4}\nmake(1, **more, **rest, **unknown())\nmake(*x)\n"
    text += "make(**rest | {'d': 5, **more} | asked)\n"
    first, second, third = Source(text).calls("make")
    assert Source(text).arguments(third) == {"d": 5, "b": 2, "c": UNKNOWN, None: UNKNOWN}
    assert Source(text).arguments(first, "a") == {"a": 1, "b": 2, "c": UNKNOWN, "d": 4, None: UNKNOWN}
    assert Source(text).arguments(second, "a") == {None: UNKNOWN}


def test_names_of_imports_are_followed():
    source = Source(
        "import trl.GRPOConfig as A\nfrom trl import GRPOConfig as B\nimport trl\nA()\nB()\ntrl.GRPOConfig()\n"
    )
    assert [call.lineno for call in source.calls("GRPOConfig")] == [4, 5, 6]

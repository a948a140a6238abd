"""What makes a function a method: its arguments are checked, its policy gets its name, and it gets
a row in the table of all methods (METHODS.md, `budgetalloc methods`)."""

import inspect
import re
from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial, wraps
from types import NoneType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    ParamSpec,
    get_args,
    get_origin,
    get_type_hints,
)

from budgetalloc.beliefs.estimator import BetaEstimator
from budgetalloc.budget import Budget
from budgetalloc.errors import (
    MOST,
    InputError,
    check_choice,
    check_flag,
    check_function,
    check_integer,
    check_known,
    check_number,
    nearest_name,
    short_repr,
)
from budgetalloc.policies import Needs, Policy, adaptive, knapsack, sampled, thompson, uniform
from budgetalloc.solvers.exact import highs, ortools
from budgetalloc.solvers.greedy import greedy
from budgetalloc.values import mixed_group, pass_at_n, success_gain, variance

Decides = Literal[
    "across prompts", "which prompts", "in rounds", "which rollouts", "which baseline"
]
SECTIONS: dict[Decides, str] = {
    "across prompts": "How many rollouts each prompt of a batch gets.",
    "which prompts": "Which prompts get rollouts.",
    "in rounds": "How a step continues after the rewards of its first rollouts: these methods "
    "decide in rounds.",
    "which rollouts": "Which of the generated rollouts are trained on; all prompts get equal "
    "counts.",
    "which baseline": "Which baseline the rewards are compared with; all prompts get equal counts.",
}
"""The main decision of a method: the sections of the table."""

Checked = Literal["ours", "released code", "paper's formulas", "a description"]
MEANINGS: dict[Checked, str] = {
    "ours": "budgetalloc's own rule.",
    "released code": "compared with the authors' code, where possible by figures that it gave; the "
    "docstring names the differences.",
    "paper's formulas": "those that the paper prints; no code was compared.",
    "a description": "an abstract, a figure or a summary by others, and no code; a formula or a "
    "constant may be guessed.",
}
"""What a method was checked against, the most reliable first."""

NAMED: dict[str, dict[str, Callable[..., Any]]] = {
    "value": {x.__name__: x for x in (mixed_group, pass_at_n, variance, success_gain)},
    "solver": {x.__name__: x for x in (greedy, highs, ortools)},
}
"""The functions that a text such as a file of settings can name, by the argument that takes them.
"""


class Between(NamedTuple):
    """The range of a number; a bound may be the name of another argument."""

    low: float | str
    high: float | str = MOST
    without: tuple[float, ...] = ()


Count = Annotated[int, Between(1)]
Share = Annotated[float, Between(0, 1)]
AboveZero = Annotated[float, Between(0, 1, without=(0,))]
Inside = Annotated[float, Between(0, 1, without=(0, 1))]
Positive = Annotated[float, Between(0, 1e12, without=(0,))]

_SOURCE = re.compile(r"[^(]+ \(([^)]+)\)\. ?(.*)")


@dataclass(frozen=True)
class Method:
    """One row of the table. It reads the first three paragraphs of the function's docstring: what
    the method does, "Formula: " and "Source: ". Rules of our own need only the first.

    Args:
        name: Name of the function.
        build: The function, called with `seed=`.
        decides: The main decision: a section of the table.
        checked: What the implementation was checked against (`MEANINGS`).
        starves: Whether the rule may never roll out some prompts again.
        of_rates: Whether the rule is about pass rates. It then uses only the mean of graded
            success.

    >>> row = method_of("vade")
    >>> row.formula, row.source
    ('a group each to the largest p (1-p)^2, p a Thompson draw', 'arXiv 2511.18902')
    >>> row.summary.partition(",")[0]
    'Chooses the prompts with the largest expected gain'
    >>> row.needs()
    {'candidates': 'all', 'baseline': 'group'}
    """

    name: str
    build: Callable[..., Policy]
    decides: Decides
    checked: Checked = "ours"
    starves: bool = False
    of_rates: bool = False
    summary: str = field(init=False)
    """What the method does and when it helps, in plain words."""
    formula: str = field(init=False)
    """The rule in one line, or ""."""
    source: str = field(init=False)
    """The paper that the rule is from, or "ours"."""
    note: str = field(init=False)
    """What the implementation was compared with and how it differs, or ""."""

    def __post_init__(self) -> None:
        text = inspect.getdoc(getattr(self.build, "func", self.build)) or ""
        summary, *parts = (" ".join(part.split()) for part in text.split("\n\n"))
        labelled = dict(part.partition(": ")[::2] for part in parts[:2])
        named = _SOURCE.fullmatch(labelled.get("Source", ""))
        source, note = named.groups() if named else ("ours", "")
        formula = labelled.get("Formula", "").removesuffix(".")
        vars(self).update(summary=summary, formula=formula, source=source, note=note)

    def needs(self) -> dict[str, Any]:
        """The method's needs beyond plain GRPO: the entries of `Needs` that differ, and
        "rounds"."""
        plain = asdict(Needs(keep_batch=True))
        needs = {
            k: v
            for k, v in asdict(self.build(seed=0).needs).items()
            if v != plain[k] and k not in ("keep_batch", "costs", "by_group", "part")
        }
        return needs | ({"rounds": True} if self.in_rounds() else {})

    def asks(self) -> str:
        """The needs as text, such as "candidates all, baseline posterior"."""
        words = [
            name if value is True else f"{name} {value}" for name, value in self.needs().items()
        ]
        return ", ".join(words) or "nothing"

    def in_rounds(self) -> bool:
        """Whether a step of the method may generate again, after its first rewards."""
        budget = Budget(rollouts=256, floor=0, min_group=1)
        return self.build(seed=0).begin(range(16), budget).in_rounds()

    @cached_property
    def _arguments(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.build).parameters

    def functions(self) -> dict[str, Any]:
        """The arguments that take functions without a name in `NAMED`, with their defaults.

        >>> method_of("gate").functions()
        {'predict': None}
        """
        return {
            key: argument.default
            for key, argument in self._arguments.items()
            if key not in NAMED and _takes_function(argument.annotation)
        }

    def defaults(self) -> dict[str, Any]:
        """All other arguments, with their defaults: plain values, and functions of `NAMED` by their
        names.

        >>> method_of("vade").defaults()
        {'group': 8, 'discount': 0.2, 'idle': 0.999, 'seed': 0}
        """
        functions = self.functions()
        return {
            key: getattr(argument.default, "__name__", argument.default)
            for key, argument in self._arguments.items()
            if key not in functions
        }

    def check_names(self, names: Iterable[str]) -> None:
        """Raises `InputError` for the name of an argument that the method does not have."""
        for name in names:
            check_known(name, self._arguments, f"{self.name}({name}=)")

    def named(self, options: Mapping[str, Any]) -> Policy:
        """The policy with these arguments, the functions of `NAMED` given by their names.

        >>> method_of("knapsack").named({"value": "pass_at_n", "seed": 3})
        knapsack(value=pass_at_n, belief='posterior', prior=(0.5, 0.5), discount=0.9, idle=1.0,
                 seed=3)

        Raises:
            InputError: an argument that the method does not have.
        """
        self.check_names(options)
        functions = {}
        for key, by_name in NAMED.items():
            if options.get(key) is not None:
                check_choice(key, options[key], tuple(by_name))
                functions[key] = by_name[options[key]]
        return self.build(**{**options, **functions})


METHODS: list[Method] = []
"""All methods, by section, then by what was checked, then by name."""
P = ParamSpec("P")


def method(
    decides: Decides, checked: Checked, *, starves: bool = False, of_rates: bool = False
) -> Callable[[Callable[P, Policy]], Callable[P, Policy]]:
    """Makes a function a method of the table. Arguments as in `Method`.

    Its arguments are checked by their annotations: `Annotated[int, Between(1)]`, a `Literal`, a
    bool, or a function with a text that says what it does. The policy that it returns gets the name
    of the function with the arguments, and the seed.
    """

    def decorate(build: Callable[P, Policy]) -> Callable[P, Policy]:
        hints, signature = get_type_hints(build, include_extras=True), inspect.signature(build)

        @wraps(build)
        def checked_and_named(*args: P.args, **given: P.kwargs) -> Policy:
            for key in given:
                check_known(key, signature.parameters, f"{build.__name__}({key}=)")
            bound = signature.bind(*args, **given)
            bound.apply_defaults()
            arguments = bound.arguments
            for key, value in arguments.items():
                arguments[key] = _checked(key, value, hints[key], arguments)
            settings = ", ".join(f"{key}={_in_name(value)}" for key, value in arguments.items())
            policy = build(*bound.args, **bound.kwargs)
            return replace(policy, name=f"{build.__name__}({settings})", seed=arguments["seed"])

        _add(checked_and_named, decides, checked, starves, of_rates)
        return checked_and_named

    return decorate


def _add(
    build: Callable[..., Policy], decides: Decides, checked: Checked, starves: bool, of_rates: bool
) -> None:
    name, order = build.__name__, (list(SECTIONS), list(MEANINGS))
    if "domain_of" in inspect.signature(build).parameters:
        build = partial(build, domain_of=_last_letter)  # for tests and benchmarks of the table
    row = Method(name, build, decides, checked, starves, of_rates)
    insort(METHODS, row, key=lambda x: (order[0].index(x.decides), order[1].index(x.checked)))


def _last_letter(prompt: Any) -> str:
    return str(prompt)[-1]


def _takes_function(kind: Any) -> bool:
    return get_origin(kind) is Callable or any(map(_takes_function, get_args(kind)))


def _checked(key: str, value: Any, kind: Any, arguments: Mapping[str, Any]) -> Any:
    """The value; raises `InputError` if it does not fit the annotation."""
    if NoneType in get_args(kind):
        if value is None:
            return value
        kind = get_args(kind)[0]
    if kind is bool:
        return check_flag(key, value)
    if get_origin(kind) is Literal:
        check_choice(key, value, get_args(kind))
    if get_origin(kind) is Annotated:
        kind, limits = get_args(kind)
        if isinstance(limits, str):
            check_function(key, value, limits)
        else:
            low, high = (arguments[x] if isinstance(x, str) else x for x in limits[:2])
            if kind is int:
                return check_integer(key, value, low, high)
            return check_number(key, value, low, high, without=limits.without)
    return value


def _in_name(value: Any) -> str:
    if isinstance(value, Mapping):
        return "given"
    return getattr(value, "__name__", type(value).__name__) if callable(value) else repr(value)


def policy(decide: Any, **given: Any) -> Policy:
    """The policy of a rule, for `method` to name.

    Args:
        decide: The rule.
        given: `prior`, `discount` and `idle` of its `BetaEstimator`, or `estimator`; the `memory`,
            `expect` and `keep` of `Policy`; and `Needs`, with baseline "group" unless given.
    """
    beliefs = {key: given.pop(key) for key in ("prior", "discount", "idle") if key in given}
    estimator = given.pop("estimator") if "estimator" in given else BetaEstimator(**beliefs)
    parts = {key: given.pop(key) for key in ("memory", "expect", "keep") if key in given}
    return Policy("", decide, estimator, needs=Needs(**{"baseline": "group"} | given), **parts)


def method_of(name: Any) -> Method:
    """The row with this name. Raises `InputError` for an unknown name and suggests the nearest one.

    >>> method_of("knapsack").decides
    'across prompts'
    """
    row = next((row for row in METHODS if row.name == name), None)
    if row is None:
        bare, called, _ = str(name).partition("(")
        near = nearest_name(bare, [row.name for row in METHODS])
        how = " Arguments are keys beside it: {name: adaptive, rounds: 3}." if called else ""
        raise InputError(
            f"policy {short_repr(name)} is unknown{near} Use a name of `budgetalloc methods`, such "
            f"as knapsack.{how}"
        )
    return row


def published() -> int:
    """The number of methods that implement a published rule.

    >>> published() + sum(method.source == "ours" for method in METHODS) == len(METHODS)
    True
    """
    return sum(method.source != "ours" for method in METHODS)


for _own in (uniform, knapsack, thompson, sampled, adaptive):
    _add(_own, "across prompts", "ours", starves=_own is knapsack, of_rates=False)

"""A policy from what an argument may be: a policy, a name, a mapping, or a function."""

import pkgutil
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from budgetalloc.errors import InputError, nearest_name, short_repr
from budgetalloc.policies.policy import Policy

PolicyLike = Policy | str | Mapping[str, Any] | Callable[..., Policy]
"""A policy, a function that builds one, or the name of such a function: of a method, of your file
("mine.py:thirds") or of a module ("package.module.thirds"). Or, as in YAML, a mapping with that
`name` and the function's arguments, of which `policy` may be another policy."""


def resolve_policy(given: PolicyLike, name: str = "policy", /, **settings: Any) -> Policy:
    """The policy that an argument specifies: a policy, a function that builds one, or its name.

    Args:
        given: Such as `ba.adaptive()`, `ba.adaptive`, "adaptive" or "mine.py:thirds". A policy is
            returned as it is. A file is run for each policy.
        name: The argument's name, for errors.
        settings: Arguments of the method or of the function, such as `seed=`.

    Raises:
        InputError: an unknown name, a file or module that cannot be loaded, a function that does
            not return a policy, or a value of another type.

    >>> import budgetalloc as ba
    >>> resolve_policy("adaptive"), resolve_policy(ba.adaptive, seed=3)
    (adaptive(seed=0), adaptive(seed=3))
    >>> resolve_policy({"name": "budgetalloc.policies.growing", "policy": "uniform", "most": 4})
    growing(uniform(prior=(0.5, 0.5), discount=1.0, idle=1.0, seed=0), first=2, most=4)
    """
    if isinstance(given, Policy):
        return given
    if isinstance(given, Mapping):
        if not isinstance(given.get("name"), str):
            raise InputError(name, "a mapping needs the key name, such as {name: knapsack}.", given)
        settings = {key: value for key, value in given.items() if key != "name"} | settings
        if "policy" in settings:
            settings["policy"] = resolve_policy(settings["policy"], f"{name}.policy")
        given = given["name"]
    build: Any = given
    if isinstance(given, str) and (":" in given or "." in given):
        build = _own_function(given, name)
    elif isinstance(given, str):
        from budgetalloc.methods.table import method_of  # loads all methods

        row = method_of(given)
        row.check_names(settings)
        if needed := [
            key
            for key, default in row.functions().items()
            if default is not None and key not in settings
        ]:
            raise InputError(
                f"{name}={given!r} needs the function {needed[0]}=, which a name cannot give: pass "
                f"budgetalloc.methods.{given}({needed[0]}=...).",
                argument=name,
            )
        return row.named(settings)
    use = (
        "give a policy such as ba.adaptive(), a name such as 'adaptive', or a function that builds "
        "a policy"
    )
    if not callable(build):
        raise InputError(
            f"{name}={short_repr(given)} is of type {type(build).__name__}: {use}.", argument=name
        )
    try:
        built: object = build(**settings)
    except TypeError as error:
        raise InputError(
            f"{name}={short_repr(given)} was called and raised TypeError, {error}: {use}.",
            argument=name,
        ) from error
    if not isinstance(built, Policy):
        raise InputError(
            f"{name}={short_repr(given)} returned {short_repr(built)} of type "
            f"{type(built).__name__}: {use}.",
            argument=name,
        )
    return built


def _own_function(given: str, name: str) -> Callable[..., Policy]:
    """The function of the user's file ("mine.py:thirds") or module ("package.module.thirds")."""
    file, _, function = given.rpartition(":")
    if file and not Path(file).is_file():
        raise InputError(f"{name}={given!r}: there is no file {file}.", argument=name)
    names: dict[str, Any] = {}
    try:
        names = runpy.run_path(file) if file else {}
        own = names.get(function) if file else pkgutil.resolve_name(given)
    except Exception as error:  # whatever the user's code raises
        said = f"{type(error).__name__}: {error}"
        raise InputError(
            f"{name}={given!r} cannot be loaded, {said}: write file.py:function, such as "
            "mine.py:thirds.",
            argument=name,
        ) from error
    if own is None:
        raise InputError(
            f"{name}={given!r}: {file} has no {function}{nearest_name(function, names)}",
            argument=name,
        )
    if isinstance(own, Policy):  # it would keep its seed and what it has learned
        raise InputError(
            f"{name}={given!r} is a policy: name a function that builds it, such as "
            "`def thirds(*, seed=0): return ba.knapsack(seed=seed)`.",
            argument=name,
        )
    return own  # type: ignore[no-any-return]

"""A policy from what an argument may be: a policy, the name of a method, or a function."""

from collections.abc import Callable
from typing import Any

from budgetalloc.errors import InputError, shown
from budgetalloc.policies.policy import Policy

__all__ = ["PolicyLike", "policy_of"]

PolicyLike = Policy | str | Callable[..., Policy]
"""A policy, the name of a method, or a function that builds a policy."""


def policy_of(given: PolicyLike, name: str = "policy", /, **settings: Any) -> Policy:
    """The policy that an argument specifies: a policy, the name of a method, or a function that
    builds a policy.

    Args:
        given: Such as `ba.adaptive()`, "adaptive" or `ba.adaptive`. A policy is returned as it is.
        name: The argument's name, for errors.
        settings: Arguments of the method or of the function, such as `seed=`.

    Raises:
        InputError: an unknown name, a function that does not return a policy, or a value of another
            type.

    >>> import budgetalloc as ba
    >>> policy_of("adaptive"), policy_of(ba.adaptive, seed=3)
    (adaptive(seed=0), adaptive(seed=3))
    """
    if isinstance(given, Policy):
        return given
    if isinstance(given, str):
        from budgetalloc.methods.table import method_of  # loads all methods

        row = method_of(given)
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
    if not callable(given):
        raise InputError(
            f"{name}={shown(given)} is of type {type(given).__name__}: {use}.", argument=name
        )
    try:
        built: object = given(**settings)
    except TypeError as error:
        raise InputError(
            f"{name}={shown(given)} was called and raised TypeError, {error}: {use}.", argument=name
        ) from error
    if not isinstance(built, Policy):
        raise InputError(
            f"{name}={shown(given)} returned {shown(built)} of type {type(built).__name__}: {use}.",
            argument=name,
        )
    return built

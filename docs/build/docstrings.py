"""An extension of griffe: doctests in docstrings are code, and a function may have the name of its module."""

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)  # to the next empty line


def fenced(text: str) -> str:
    """The text with a fence around each doctest.

    >>> print(fenced("Adds.\\n\\n>>> 1 + 1\\n2"))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    return DOCTEST.sub(lambda test: f"{test[1]}```pycon\n{test[0]}\n{test[1]}```", text)


class Docstrings(griffe.Extension):
    """Puts a fence around each doctest of the package, and leads its public names to functions."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Without running the code, `from room import x` is taken for the module room/x.py where there is one."""
        modules = {module.path: module for module in _modules(pkg)}
        for name, public in list(pkg.members.items()):
            module = modules.get(public.target_path) if public.is_alias else None
            if module is not None and name in module.members:
                pkg.set_member(name, griffe.Alias(name, f"{module.path}.{name}", parent=pkg))

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called with each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def _modules(parent: griffe.Module) -> list[griffe.Module]:
    """All modules below this one."""
    below = [member for member in parent.members.values() if isinstance(member, griffe.Module)]
    return below + [module for child in below for module in _modules(child)]

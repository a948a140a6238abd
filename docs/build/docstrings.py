"""An extension of griffe: doctests in docstrings are code, not quotations of quotations."""

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


class Doctests(griffe.Extension):
    """Puts a fence around each doctest of the package."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called with each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)

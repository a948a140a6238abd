"""HTML and SVG as text, with everything escaped that is not markup already."""

import html
from collections.abc import Iterable, Sequence
from importlib import resources
from string import Template

__all__ = ["Markup", "element", "escaped", "page", "paragraphs", "table"]


class Markup(str):
    """Text that is markup already. All other text is escaped when it is put into an element."""


def element(name: str, *content: object, **attributes: object) -> Markup:
    """An element with its content and attributes.

    Args:
        name: Name of the element.
        content: Texts, which are escaped, and `Markup`, which is not.
        attributes: `cls` is the class, and `_` stands for a hyphen. Floats get one decimal.

    >>> element("p", "1 < 2", element("b", "!"), cls="first")
    '<p class="first">1 &lt; 2<b>!</b></p>'
    """
    given = []
    for key, value in attributes.items():
        text = f"{value:.1f}" if isinstance(value, float) else value
        given.append(f' {"class" if key == "cls" else key.replace("_", "-")}="{escaped(text)}"')
    return Markup(f"<{name}{''.join(given)}>{''.join(map(escaped, content))}</{name}>")


def escaped(text: object) -> Markup:
    """The text as markup. Lone surrogates, which UTF-8 does not have, are replaced; "%" stays on the number's line."""
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(str(text).encode(errors="replace").decode()).replace(" %", "\xa0%"))


def paragraphs(sentences: Iterable[str], **attributes: object) -> list[Markup]:
    """A paragraph for each sentence that is not empty."""
    return [element("p", text, **attributes) for text in sentences if text]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """A table whose first column is text; the other columns are numbers."""

    def line(tag: str, cells: Sequence[str]) -> Markup:
        first, *numbers = cells
        return element("tr", element(tag, first, cls="name"), *(element(tag, number) for number in numbers))

    lines = [line("th", head), *(line("td", row) for row in rows)]
    return element("div", element("table", *lines), cls="scroll")


def page(title: str, *body: Markup) -> str:
    """A self-contained page from `page.html`. Its content security policy forbids scripts and loading."""
    template = Template(resources.files("budgetalloc.report").joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(title=escaped(title), body="\n".join(body))

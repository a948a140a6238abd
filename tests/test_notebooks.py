"""The notebooks: equal to their sources, run as a reader runs them, and kept with outputs that are clean."""

import importlib.util
import json
import re
from pathlib import Path

import nbformat
import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
_spec = importlib.util.spec_from_file_location("notebooks_build", FOLDER / "build.py")
build = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(build)

KEPT = sorted(FOLDER.glob("*.ipynb"))
# An absolute path of two parts or more; not a URL, a share such as "p/(1-p)" or a closing tag.
A_PATH = re.compile(r"(?<![\w.:/<])/[A-Za-z_][\w.-]*/[\w.-]+|\b[A-Z]:\\\w+")


def read(path):
    return nbformat.read(path, as_version=4)


def outputs(book):
    return [output for cell in book.cells for output in cell.get("outputs", [])]


def texts(book):
    """Everything in the outputs that is not a picture."""
    for output in outputs(book):
        for kind, value in {"text": output.get("text", ""), **output.get("data", {})}.items():
            if not kind.startswith("image/"):
                yield value if isinstance(value, str) else json.dumps(value)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_the_kept_notebook_equals_its_source(path):
    made, kept = build.notebook(FOLDER / "source" / f"{path.stem}.py"), read(path)
    again = f"run `python notebooks/build.py {path.name[:2]}` and commit the notebook"
    assert [(cell.cell_type, cell.source) for cell in kept.cells] == [(c.cell_type, c.source) for c in made.cells], (
        again
    )
    assert kept.metadata == made.metadata


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_the_kept_outputs_are_clean(path):
    book = read(path)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "not run in one go"
    assert {output.output_type for output in outputs(book)} <= {"stream", "display_data", "execute_result"}
    assert [output.text for output in outputs(book) if output.get("name") == "stderr"] == []
    assert [named for text in texts(book) for named in A_PATH.findall(text)] == []
    assert sum("image/png" in output.get("data", {}) for output in outputs(book)) >= 2
    assert path.stat().st_size < 400_000


@pytest.mark.parametrize("path", build.SOURCES, ids=lambda path: path.stem)
def test_it_runs_as_it_is_shipped(path):
    book = build.run(build.notebook(path))
    assert any("image/png" in output.get("data", {}) for output in outputs(book))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_it_begins_with_a_question_and_ends_with_a_picture_and_a_sentence(path):
    first, *_, picture, last = read(path).cells
    assert first.source.splitlines()[0].endswith("?")
    assert "image/png" in picture.outputs[-1].data
    assert last.cell_type == "markdown"

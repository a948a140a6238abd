"""Makes the notebooks from their sources, runs them, and keeps them with their outputs.

    python notebooks/build.py                 # all of them
    python notebooks/build.py 02 06           # those whose names begin so

A source is a Python file in cells: `# %%` begins code, `# %% [markdown]` begins text. After changing a source, run this
command and commit both; `tests/test_notebooks.py` fails if the two differ. The same versions of the libraries make the
same bytes: seeds are fixed, and no time, path or processor is written.
"""

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

HERE = Path(__file__).resolve().parent
SOURCES = sorted((HERE / "source").glob("[0-9]*.py"))
_METADATA = {
    "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
    "language_info": {"name": "python"},  # without the version of whoever ran it
}


def notebook(source: Path) -> Any:
    """The notebook of a source, without outputs."""
    parts = re.split(r"^# %%(.*)\n", source.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if parts[0].strip():
        raise ValueError(
            f"{source.name}: the source begins with {parts[0][:40]!r}: begin with '# %%' or '# %% [markdown]'."
        )
    cells = []
    for kind, body in zip(parts[1::2], parts[2::2], strict=True):
        if kind.strip() == "[markdown]":
            cells.append(new_markdown_cell(re.sub(r"^# ?", "", body.strip(), flags=re.MULTILINE)))
        elif not kind.strip():
            cells.append(new_code_cell(body.strip()))
        else:
            raise ValueError(f"{source.name}: '# %%{kind}' is neither '# %%' nor '# %% [markdown]'.")
    for at, cell in enumerate(cells):
        cell["id"] = f"cell-{at:02d}"  # nbformat's are random
    return new_notebook(cells=cells, metadata=_METADATA)


def run(book: Any, *, timeout: int = 1800) -> Any:
    """Executes the cells in this very Python, in the folder of the notebooks; raises `CellExecutionError`."""
    from ipykernel.kernelspec import write_kernel_spec
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import KernelManager
    from nbclient import NotebookClient

    with tempfile.TemporaryDirectory() as folder:
        write_kernel_spec(Path(folder) / "running")  # of sys.executable, whatever else is installed as "python3"
        specs = KernelSpecManager(kernel_dirs=[folder], ensure_native_kernel=False)
        kernel = KernelManager(kernel_name="running", kernel_spec_manager=specs)
        client = NotebookClient(
            book,
            km=kernel,
            extra_arguments=["--log-level=ERROR"],
            timeout=timeout,
            startup_timeout=timeout,
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": str(HERE)}},
        )
        env = {k: v for k, v in os.environ.items() if k not in ("MPLBACKEND", "FORCE_COLOR")}
        env |= {
            "IPYTHONDIR": folder,
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }  # independent of the user's settings
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE.parent), env.get("PYTHONPATH")]))
        try:
            client.execute(env=env)
        finally:
            kernel.shutdown_kernel(now=True)
    book["metadata"] = dict(_METADATA)
    return book


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="beginnings of names, such as 02; default: all")
    args = parser.parse_args()
    chosen = [path for path in SOURCES if not args.names or path.name.startswith(tuple(args.names))]
    if not chosen:
        sys.exit(f"No notebook begins with {' or '.join(args.names)}: {', '.join(path.stem for path in SOURCES)}.")
    for source in chosen:
        book = run(notebook(source))
        text = nbformat.writes(book) + "\n"
        (HERE / f"{source.stem}.ipynb").write_text(text, encoding="utf-8")
        print(f"{source.stem}: {len(book.cells)} cells, {len(text) / 1000:.0f} KB", flush=True)


if __name__ == "__main__":
    main()

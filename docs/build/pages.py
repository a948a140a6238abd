"""A hook of mkdocs: files of the repository as pages of the site, at their own paths, so that nothing is copied.

The relative links of every page are those that work in the repository, and become links of the site. A link to a file
that is not a page gets the file itself. A notebook becomes a page from its stored outputs. A link to a place of the
repository that the site does not have is shown as text.
"""

import base64
import json
import re
import tomllib
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("integrations", "benchmarks", "notebooks")
PAGES = ("METHODS.md", "CONTRIBUTING.md", "CHANGELOG.md", *(f"{room}/**/*.md" for room in ROOMS))
FILES = ("integrations/**/*.py", "integrations/axolotl/*.yaml", "configs/*.yaml", "LICENSE")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
_SHOWN = ("image/png", "text/plain")  # kinds of outputs, the best first


def on_config(config: Any) -> None:
    """Adds the page of each trainer to the navigation, the version to every page and, once pyproject.toml states it,
    the address of the repository."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    config.extra["license"] = project["license"]
    config.repo_url = project.get("urls", {}).get("Repository")
    config.repo_name = "repository" if config.repo_url else None
    config.copyright = f"{config.site_name} {version()}, {project['license']}"
    config.extra["polyfills"] = ["search/offline.js"]
    pages = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("integrations/*/README.md"))]
    sections = {name: items for entry in config.nav for name, items in entry.items()}
    next(item["Trainers"] for item in sections["Use"] if "Trainers" in item).extend(pages)


def on_files(files: Files, config: Any) -> Files:
    """Adds the repository's pages and files to those of docs/."""
    for pattern in (*PAGES, *FILES):
        for path in sorted(ROOT.glob(pattern)):
            if files.get_file_from_path(name := path.relative_to(ROOT).as_posix()) is None:
                files.append(File.generated(config, name, abs_src_path=str(path)))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        text, pictures = notebook(json.loads(path.read_text(encoding="utf-8")), path.stem)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
        for name, picture in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turns links of the repository into links of the site; those to what the site does not have become text."""
    name = page.file.src_uri
    if name == "index.md":
        markdown = _front(markdown, config)
    folder = dirname(name if page.file.generated_by else f"docs/{name}")  # in the repository

    def mended(link: re.Match[str]) -> str:
        picture, text, target, anchor = link.groups(default="")
        path = normpath(join(folder, target))
        place = re.sub(r"\.ipynb$", ".md", path.removeprefix("docs/"))  # on the site
        if files.get_file_from_path(place) is not None:
            return f"{picture}[{text}]({relpath(place, dirname(name) or '.')}{anchor})"
        if (ROOT / path).exists():
            return text if "`" in text else f"`{text}`"
        return link[0]

    return LINK.sub(mended, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Marks what stays in one line: code of one word, and cells of figures, such as "+0.017 (0.013 to 0.021)"."""
    html = re.sub(r"<code>([^\s<]{1,30})</code>", r'<code class="line">\1</code>', html)
    return re.sub(r"<td(?=[^>]*>[+-]?\d[^<>]{0,30}</td>)", '<td class="line"', html)


def _front(markdown: str, config: Any) -> str:
    """The front page with the release, and with sections of README.md."""
    parts = [f"Version {version()}", "[what changed](../CHANGELOG.md)", config.extra["license"]]
    parts += [f"[repository]({config.repo_url})"] if config.repo_url else []
    markdown = markdown.replace("{{ release }}", " · ".join(parts))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    def section(named: re.Match[str]) -> str:
        text = readme.split(f"\n## {named[1]}\n", 1)[1].split("\n## ", 1)[0]
        text = re.sub(r"\]\((?!https?:|#)", "](../", text).replace("](../docs/", "](")
        return f"## {named[1]}\n{text}"

    return re.sub(r"\{\{ README: (.+) \}\}", section, markdown)


def version() -> str:
    """The version of the package, which is not imported."""
    text = (ROOT / "budgetalloc/__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)[1]  # type: ignore[index]


def on_post_build(config: Any) -> None:
    """Writes what lets the search work in pages that are opened as files."""
    site = Path(config.site_dir)
    index = (site / "search/search_index.json").read_text(encoding="utf-8")
    (site / "search/search_index.js").write_text(f"var __index = {index}", encoding="utf-8")
    workers = sorted((site / "assets/javascripts/workers").glob("*.js"))
    sources = json.dumps({path.name: path.read_text(encoding="utf-8") for path in workers})
    script = (ROOT / "docs/build/offline.js").read_text(encoding="utf-8")
    (site / "search/offline.js").write_text(f"const SOURCES = {sources}\n{script}", encoding="utf-8")


def notebook(book: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """The Markdown of a notebook with its outputs, and its pictures by file name."""
    parts, pictures = [], {}
    for cell in book["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(_fenced(source, "py"))
        for output in cell["outputs"]:
            shown = {"text/plain": output["text"]} if output["output_type"] == "stream" else output.get("data", {})
            kind = next((kind for kind in _SHOWN if kind in shown), None)
            if kind == "image/png":
                file = f"{name}_{len(pictures)}.png"
                pictures[file] = base64.b64decode("".join(shown[kind]))
                parts.append(f"![output]({file})")
            elif kind is not None:
                parts.append(_fenced("".join(shown[kind]), "text"))
    parts.append(f"The notebook is `notebooks/{name}.ipynb` in the repository.")
    return "\n\n".join(parts), pictures


def _fenced(text: str, language: str) -> str:
    return f"~~~~ {language}\n{text.rstrip()}\n~~~~"

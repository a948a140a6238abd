"""Does docs/start.md work from empty environments? `make start`, outside CI: it installs torch.

python tests/start.py       # the Python that runs this is that of the environments

Two environments, with pip alone and a copy of the repository: the core, without pandas, to which `[logs]` comes; and
one that has an older TRL, into which `[trl]` is installed. The page's commands and blocks of code run there, and must
print what the page says.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from new_environment import Environment  # beside this file

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/start.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
OLDER_TRL = "trl==1.12.0"


def main() -> None:
    plain_loop, finished_run = BLOCK.findall(PAGE)
    installs = re.findall(r"^    pip install ([^-\s]\S*) .*#", PAGE, re.MULTILINE)
    assert installs == ["'.[trl]'", "."], installs
    with tempfile.TemporaryDirectory(prefix="budgetalloc-start-") as folder:
        clone = cloned(Path(folder) / "clone")
        core = Empty(Path(folder) / "core")
        core.run("pip", "install", "--quiet", clone)
        core.prints(*plain_loop)
        told = core.run("budgetalloc", "report", "run/completions", status=1)
        assert "[logs]" in told, told  # which extra to install
        core.run("pip", "install", "--quiet", f"{clone}[logs]")
        core.prints(*finished_run)

        trl = Empty(Path(folder) / "trl")
        trl.run("pip", "install", "--quiet", "torch==2.13.0", OLDER_TRL)
        trl.run("pip", "install", "--quiet", f"{clone}[trl]")
        version = trl.version("trl")
        assert tuple(map(int, version.split(".")[:2])) >= (1, 14), version
        (trl.folder / "first_run.py").write_text(trl.run("budgetalloc", "recipe", "first_run", quiet=True))
        told = trl.run("python", "first_run.py")
        assert re.search(r"Success on held-out prompts: 0\.446 before, 0\.\d{3} after 15,360 rollouts\.", told), told
        told = trl.run("budgetalloc", "check", "first_run.py")
        assert "adaptive(" in told, told
        trl.prints(*plain_loop)


class Empty(Environment):
    """An environment with pip alone."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, sys.executable, "-m", "venv")

    def prints(self, code: str, output: str) -> None:
        """Runs a block of the page, which must print what the page says."""
        told = self.run("python", "-c", code, quiet=True)
        assert told.split() == output.split(), f"printed {told!r}, the page says {output!r}"


def cloned(folder: Path) -> Path:
    """A copy of the repository's files in this new folder."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in names.stdout.splitlines():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


if __name__ == "__main__":
    main()

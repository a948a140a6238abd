"""Does docs/start.md work from empty environments? `make start`, outside CI: it installs torch.

python tests/start.py       # the Python that runs this is that of the environments

Two environments, with pip alone and a copy of the repository: the core, without pandas, to which `[logs]` comes; and
one that has an older TRL, into which `[trl]` is installed. The page's commands and blocks of code run there, and must
print what the page says.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/start.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
OLDER_TRL = "trl==1.12.0"


def main() -> None:
    plain_loop, finished_run = BLOCK.findall(PAGE)
    installs = re.findall(r"^    pip install ([^-\s]\S*) .*#", PAGE, re.MULTILINE)
    assert installs == ["'.[trl]'", "."], installs
    with tempfile.TemporaryDirectory(prefix="budgetalloc-start-") as folder:
        core = Empty(Path(folder) / "core")
        core.call("pip", "install", "--quiet", core.clone)
        core.prints(*plain_loop)
        told = core.call("budgetalloc", "report", "run/completions", status=1)
        assert "[logs]" in told, told  # which extra to install
        core.call("pip", "install", "--quiet", f"{core.clone}[logs]")
        core.prints(*finished_run)

        trl = Empty(Path(folder) / "trl")
        trl.call("pip", "install", "--quiet", "torch==2.13.0", OLDER_TRL)
        trl.call("pip", "install", "--quiet", f"{trl.clone}[trl]")
        version = trl.call("python", "-c", "import trl; print(trl.__version__)").strip()
        assert tuple(map(int, version.split(".")[:2])) >= (1, 14), version
        (trl.folder / "first_run.py").write_text(trl.call("budgetalloc", "recipe", "first_run"))
        told = trl.call("python", "first_run.py")
        assert re.search(r"Success on held-out prompts: 0\.446 before, 0\.\d{3} after 15,360 rollouts\.", told), told
        told = trl.call("budgetalloc", "check", "first_run.py")
        assert "adaptive(" in told, told
        trl.prints(*plain_loop)


class Empty:
    """A new environment with pip alone, in which commands run as those of a user: in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clone = folder / "work", folder / "clone"
        self._bin = folder / "environment/bin"
        names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
        for name in names.stdout.splitlines():
            (self.clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.clone / name)
        self.folder.mkdir()
        self._env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        self._env |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        subprocess.run([sys.executable, "-m", "venv", str(folder / "environment")], check=True)

    def call(self, command: str, *more: object, status: int = 0) -> str:
        """Runs a command of the environment; returns what it printed."""
        started, words = time.monotonic(), list(map(str, more))
        line = [str(self._bin / command), *words]
        done = subprocess.run(line, cwd=self.folder, env=self._env, capture_output=True, text=True, check=False)
        print(f"{time.monotonic() - started:6.1f} s: {command} {' '.join(words)[:60].strip()!r}", flush=True)
        if done.returncode != status:
            sys.exit(f"status {done.returncode} and not {status}\n{done.stdout}\n{done.stderr}")
        return done.stdout + (done.stderr if status else "")

    def prints(self, code: str, output: str) -> None:
        """Runs a block of the page, which must print what the page says."""
        told = self.call("python", "-c", code)
        assert told.split() == output.split(), f"printed {told!r}, the page says {output!r}"


if __name__ == "__main__":
    main()

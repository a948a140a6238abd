"""New environments of Python for `make wheel` and `make start`."""

import os
import subprocess
import sys
import time
from pathlib import Path


class Environment:
    """A new environment, in which commands run as those of a user: in a folder of their own, with no PYTHONPATH.

    Args:
        folder: Where it is made.
        make: The command that makes it, without the folder.
    """

    def __init__(self, folder: Path, *make: object) -> None:
        self.folder = folder
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        self.env |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        self._call([*make, folder])

    def version(self, package: str) -> str:
        code = f"import importlib.metadata; print(importlib.metadata.version({package!r}))"
        return self.run("python", "-c", code, quiet=True).strip()

    def run(self, command: str, *more: object, quiet: bool = False, status: int = 0) -> str:
        """Runs a command of the environment and returns what it printed, with its errors if it shall fail."""
        started, words = time.monotonic(), list(map(str, more))
        printed = self._call([self.folder / "bin" / command, *words], status=status)
        if not quiet:
            print(printed.rstrip())
        print(f"    {time.monotonic() - started:.1f} s: {command} {' '.join(words)[:50].strip()!r}", flush=True)
        return printed

    def _call(self, words: list[object], status: int = 0) -> str:
        line = [str(word) for word in words]
        done = subprocess.run(
            line,
            cwd=self.folder if self.folder.exists() else None,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != status:
            sys.exit(f"{' '.join(line)[:200]}: status {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout + (done.stderr if status else "")

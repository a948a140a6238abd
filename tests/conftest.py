"""Property tests draw the same examples each time: what passed before a commit passes after it.

`HYPOTHESIS_PROFILE=explore make test` draws new ones. Neither has a deadline: a busy machine fails no test.
"""

import gc
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# The first runs where Tinker is; the others are programs of `make`, which import what lies beside them.
collect_ignore = ["integrations/fake_tinker.py", "start.py", "wheel.py"]


# What takes minutes, first: at the end the other worker would wait for it.
LONGEST = ("verl/test_runs.py", "trl/test_vllm.py", "trl/test_processes.py", "trl/test_faults.py", "test_notebooks.py")


def pytest_configure():
    """A shell that runs the tests in its background leaves them with Ctrl-C ignored, and so every process that they
    start: the tests that send one would wait for ever."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    def place(item):
        return next(
            (at for at, file in enumerate(LONGEST) if item.path.as_posix().endswith(f"tests/{file}")), len(LONGEST)
        )

    items.sort(key=place)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    """What is imported stays, so that no garbage collection looks at it again: accelerate collects after each training,
    which takes a quarter of a second where torch and TRL are imported, more than a test's training itself."""
    gc.collect()
    gc.freeze()


def browser():
    """The path of a Chromium, or None."""
    own = Path(sys.prefix) / "browser" / "chromium"
    named = os.environ.get("BUDGETALLOC_BROWSER")
    browsers = [named, str(own) if own.exists() else None]
    browsers += [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome", "headless_shell")]
    return next((path for path in browsers if path), None)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    """A headless browser: the one that `make` puts into the environment, or that BUDGETALLOC_BROWSER names. Without it,
    and without playwright to drive it, tests that need it are skipped."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright, which drives the browser, is not here")
    path = browser()
    if path is None:
        pytest.skip("no Chromium here: `make .venv/browser/chromium`, or name one in BUDGETALLOC_BROWSER")
    folder = tmp_path_factory.mktemp("browser")
    fonts = folder / "fonts.conf"
    # Fonts and libraries of its own lie beside a Chromium that `make` installed: a bare machine has none.
    places = (
        f"<dir>{Path(path).parent / 'fonts'}</dir><dir>/usr/share/fonts</dir><cachedir>{folder / 'cache'}</cachedir>"
    )
    fonts.write_text(f'<?xml version="1.0"?><fontconfig>{places}</fontconfig>')
    env = os.environ | {"FONTCONFIG_FILE": str(fonts), "LD_LIBRARY_PATH": str(Path(path).parent / "al2023" / "lib")}
    with playwright.sync_playwright() as play:
        chromium = play.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"], env=env, timeout=180_000
        )
        yield chromium
        chromium.close()

"""The tests of the TRL callback under the last three minors of TRL, each in an environment of its own: one table.

    make trl-matrix                                         # 1.14, 1.15 and 1.16
    python benchmarks/trl_matrix.py --trl 1.14.2            # one of them
    python benchmarks/trl_matrix.py --trl 1.10.0 tests/trl/test_seam.py     # another version: which names it lacks

Stops with an error unless all tests of all versions pass. Environments are kept as .venv-trl-VERSION.
"""

import argparse
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("1.14.2", "1.15.0", "1.16.0")  # the last release of each minor


def pins(name: str) -> dict[str, str]:
    """Package: its version, of a file in constraints/; none where there is no such file."""
    path = ROOT / "constraints" / name
    lines = path.read_text().splitlines() if path.exists() else []
    return dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))


def environment(version: str) -> Path:
    """The environment of a version, made anew if its constraints or budgetalloc's dependencies have changed."""
    folder = ROOT / f".venv-trl-{version}"
    more = pins(f"trl-{version}.txt")
    inside = version in VERSIONS  # else outside of the range that pip would install with us
    every = pins("tested.txt") | more | ({"trl": version} if inside else {})
    constraints = "".join(f"{name}=={pin}\n" for name, pin in every.items())
    wanted = constraints + (ROOT / "pyproject.toml").read_text()
    installed, file = folder / "installed", folder / "constraints.txt"
    if installed.exists() and installed.read_text() == wanted:
        return folder
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    file.write_text(constraints)
    pip = [folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", file]
    subprocess.run([*pip, "torch"], check=True)  # first, so that a local build for the CPU is taken where there is one
    subprocess.run([*pip, *more, "--editable", f"{ROOT}[dev]"], check=True)
    # As in the Makefile: in a separate folder, because transformers and accelerate change if they can import DeepSpeed.
    beside = ["--target", folder / "deepspeed", "deepspeed", "hjson", "msgpack", "py-cpuinfo", "einops"]
    subprocess.run([*pip, "--no-deps", *beside], check=True)
    if not inside:
        subprocess.run([*pip[:-2], "--no-deps", f"trl=={version}"], check=True)
    installed.write_text(wanted)
    return folder


def test(version: str, tests: list[str], processes: int) -> tuple[Counter[str], list[str]]:
    """How many tests passed, failed or were skipped; which failed, and why others were skipped."""
    folder = environment(version)
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    # Tiny models: a second thread only waits. TRL 1.15 scores by Triton also without a GPU, which can interpret it.
    env = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "TRITON_INTERPRET": "1"}
    options = ["-q", "-n", str(processes), "--dist", "loadfile", f"--junitxml={report}"]
    started = time.perf_counter()
    done = subprocess.run([folder / "bin/python", "-m", "pytest", *options, *tests], cwd=ROOT, env=env, check=False)
    counts, notes = Counter({"seconds": round(time.perf_counter() - started)}), []
    if not report.exists():
        return counts + Counter(failed=1), [f"{version}: pytest ended with {done.returncode} before it made a report"]
    for case in ET.parse(report).iter("testcase"):
        bad = [child for child in case if child.tag in ("failure", "error")]
        skipped = case.find("skipped")
        counts["failed" if bad else "passed" if skipped is None else "skipped"] += 1
        what, name = (bad or [skipped])[0], f"{case.get('classname')}.{case.get('name')}".lstrip(".")
        if what is not None:
            said = (what.get("message") or "").splitlines() or [""]
            notes.append(f"{version} {'FAILED' if bad else 'skipped'} {name}: {said[0]}")
    if not counts["passed"]:
        counts["failed"] += 1
    return counts, notes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl", action="append", help=f"default: {', '.join(VERSIONS)}")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    # The tests of vLLM have an environment of their own, with its own TRL.
    every = ["tests/trl", "tests/contrib/trl", "--ignore=tests/trl/test_vllm.py"]
    parser.add_argument("tests", nargs="*", default=every)
    args = parser.parse_args()
    results = {version: test(version, args.tests, args.jobs) for version in args.trl or VERSIONS}
    print()
    for _, notes in results.values():
        print(*notes, sep="\n", end="\n" if notes else "")
    print("\n| TRL | passed | failed | skipped | seconds |\n|---|---|---|---|---|")
    for version, (counts, _) in results.items():
        print(f"| {version} | " + " | ".join(str(counts[x]) for x in ("passed", "failed", "skipped", "seconds")) + " |")
    return int(any(counts["failed"] for counts, _ in results.values()))


if __name__ == "__main__":
    sys.exit(main())

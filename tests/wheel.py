"""Installs the wheel of dist/ into bare environments and does there what a user does first: `make wheel`.

python tests/wheel.py DIST UV CONSTRAINTS       # the Python that runs this is that of the environments

Two environments, outside of the repository: the core alone, to which `[logs]` comes, and `[trl]` beside a torch that
was there before. Nothing of the repository can be imported in them.
"""

import sys
import tempfile
import zipfile
from pathlib import Path

from new_environment import Environment  # beside this file

MOST = 1_500_000  # bytes of the wheel; the weights of the demo's model are 683 kB of it

RULES = """
import importlib.metadata, sys
import budgetalloc as ba
from budgetalloc import testing
assert importlib.metadata.version("budgetalloc") == ba.__version__
assert "site-packages" in ba.__file__, ba.__file__
def mine(seed=0):
    return ba.thompson(seed=seed, value=ba.pass_at_n)
for check in testing.CHECKS:
    check(mine)
print(f"{len(testing.CHECKS)} rules kept by a policy of one's own, budgetalloc", ba.__version__)
"""
LOG = """
import budgetalloc as ba
from budgetalloc import testing
writer = ba.LedgerWriter("ledger.jsonl")
for step, rows in testing.log_of(testing.turning(), steps=40).frame.groupby("step"):
    ids, size = [f"p{name}" for name in rows.prompt], [8] * len(rows)
    writer.append(step, ids, rows.reward, [9] * len(rows), [0.5] * len(rows), size)
"""
TYPED = """
import budgetalloc as ba
counts = ba.uniform().allocate(["a", "b"], ba.Budget(rollouts=16))
reveal_type(counts.sum())
ba.Budget(rollouts="16")
"""
TINY = """
policy: adaptive
callback: {ledger: run/ledger.jsonl}
model: WEIGHTS
dataset: train.jsonl
grpo: {output_dir: run, per_device_train_batch_size: 32, num_generations: 4, max_completion_length: 5, max_steps: 4,
       report_to: none, save_steps: 2}
"""


def main(dist: Path, uv: Path, constraints: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    (source,) = dist.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes, {len(names)} files; {source.name}: {source.stat().st_size:,}")
    assert wheel.stat().st_size < MOST
    assert "budgetalloc/py.typed" in names
    assert not [name for name in names if not name.startswith(("budgetalloc/", "budgetalloc-"))]
    with tempfile.TemporaryDirectory(prefix="budgetalloc-wheel-") as folder:
        core = Bare(Path(folder) / "core", uv, constraints)
        core.install(wheel, "mypy")
        core.run("python", "-c", RULES)
        core.run("budgetalloc", "methods", quiet=True)
        (core.folder / "typed.py").write_text(TYPED)
        told = core.run("mypy", "--strict", "typed.py", quiet=True, status=1)
        assert "Revealed type is" in told, told
        assert told.count("error:") == 1, told
        assert 'Argument "rollouts" to "Budget" has incompatible type "str"' in told, told

        core.install(f"{wheel}[logs]")
        core.run("python", "-c", LOG)
        core.run("budgetalloc", "report", "ledger.jsonl", "--html", "report.html", "--seeds", "1", quiet=True)

        trl = Bare(Path(folder) / "trl", uv, constraints)
        trl.install("torch")
        torch = trl.version("torch")
        trl.install(f"{wheel}[trl]")
        assert trl.version("torch") == torch, "the user's torch was replaced"
        trl.run("budgetalloc", "demo", "--steps", "4", "--seeds", "1")
        trl.run("budgetalloc", "report", "runs/demo/adaptive_20.jsonl", "--seeds", "1", quiet=True)
        own = "from budgetalloc.cli.testbed.skills import *; import json\n"
        own += "rows = [row for row in pool(20) if not skill_of(row['prompt_id']).is_trap]\n"
        own += "lines = [json.dumps({'prompt': row['prompt'], 'answer': answer(row['prompt'])}) for row in rows]\n"
        own += "open('train.jsonl', 'w').write('\\n'.join(lines)); print(WEIGHTS)"
        weights = trl.run("python", "-c", own, quiet=True).strip()
        (trl.folder / "tiny.yaml").write_text(TINY.replace("WEIGHTS", weights))
        (trl.folder / "train.py").write_text(trl.run("budgetalloc", "recipe", "trl", quiet=True))
        trl.run("python", "train.py", "tiny.yaml", quiet=True)
        told = trl.run("budgetalloc", "report", "run/ledger.jsonl", "--no-replay", quiet=True)
        assert "4 steps" in told or "4 decisions" in told, told
        print("a callback run of 4 steps by the recipe, and its report")


class Bare(Environment):
    """An environment in which uv installs the tested versions."""

    def __init__(self, folder: Path, uv: Path, constraints: Path) -> None:
        self.uv, self.constraints = uv, constraints
        super().__init__(folder, uv, "venv", "--quiet", "--python", sys.executable)

    def install(self, *what: object) -> None:
        given = ["--quiet", "--python", self.folder, "--constraint", self.constraints]
        self._call([self.uv, "pip", "install", *given, *what])


if __name__ == "__main__":
    main(*(Path(word).resolve() for word in sys.argv[1:]))

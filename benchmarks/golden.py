"""Golden runs: does a change leave every number as it was?

    python benchmarks/golden.py HEAD~1        # a commit, in a worktree, against the present files
    python benchmarks/golden.py HEAD~1 --only adaptive

Figures differ between processors, so nothing is stored: both sides run here, one after the other. Each case trains a
tiny Llama for 12 steps with TRL, in one or two processes, or runs a `Session` or `simulate`. Compared to the bit are,
step by step, the prompts and the advantages that the loss gets, all metrics that both sides log (but seconds), and the
hash of the final weights. The exit status is 1 if anything differs.
"""

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
POLICIES = ("uniform", "adaptive", "adaptive_3", "knapsack", "thompson", "spo", "ar3po")
STEPS, RESUMED_AT = 12, 6
Record = dict[str, Any]


def policy_of(name: str) -> Any:
    import budgetalloc as ba

    return ba.adaptive(rounds=3) if name == "adaptive_3" else name


def low_digit(completions: list[str], **_: Any) -> list[float]:
    return [float(text[:1].isdigit() and text[0] < "5") for text in completions]


def share_of_low(completions: list[str], **_: Any) -> list[float]:
    return [sum(x < "5" for x in text if x.isdigit()) / 4 for text in completions]


def long_enough(completions: list[str], **_: Any) -> list[float]:
    return [0.2 * (len(text.split()) > 2) for text in completions]


REWARDS: dict[str, list[Callable[..., list[float]]]] = {
    "binary": [low_digit],
    "graded": [share_of_low],
    "two": [low_digit, long_enough],
}


def trained(name: str, reward: str, folder: Path, resume: bool = False) -> Record:
    """Twelve steps of TRL's trainer. `resume`: the run ends after step 6, and another one continues it."""
    sys.path.insert(0, str(ROOT / "tests" / "trl"))
    import torch
    from tiny_model import SETTINGS, fresh_model, make_tokenizer, rows
    from trl import GRPOConfig, GRPOTrainer

    from budgetalloc.trl import AdaptiveGRPOCallback

    torch.set_num_threads(1)
    fresh_model().save_pretrained(folder / "model")
    steps: list[Record] = []

    def run(last: int, checkpoint: str | None) -> Any:
        settings = {**SETTINGS, "output_dir": str(folder / "run"), "max_steps": STEPS, "learning_rate": 1e-3}
        settings["lr_scheduler_type"] = "constant"
        settings |= {"save_strategy": "steps", "save_steps": RESUMED_AT} if resume else {}
        trainer = GRPOTrainer(
            model=fresh_model(),
            reward_funcs=REWARDS[reward],
            args=GRPOConfig(**settings),
            train_dataset=rows(),
            processing_class=make_tokenizer(),
        )
        loss = trainer._compute_loss

        def recorded(model: Any, inputs: dict[str, Any]) -> Any:
            advantages = inputs["advantages"].double().numpy()
            of_step = {name: digest(inputs[name].numpy()) for name in ("prompt_ids", "completion_ids", "advantages")}
            size = float(np.sqrt(np.mean(advantages**2)))
            steps.append(of_step | {"mean": float(advantages.mean()), "rms": size})
            return loss(model, inputs)

        trainer._compute_loss = recorded
        trainer.add_callback(AdaptiveGRPOCallback(trainer, policy_of(name)))
        if last < STEPS:
            trainer.add_callback(stops_after(last))
        with contextlib.redirect_stdout(sys.stderr):
            trainer.train(resume_from_checkpoint=checkpoint)
        return trainer

    if resume:
        run(RESUMED_AT, None)
        trainer = run(STEPS, str(folder / "run" / f"checkpoint-{RESUMED_AT}"))
    else:
        trainer = run(STEPS, None)
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    metrics = [{k: x for k, x in entry.items() if k.startswith("budgetalloc/")} for entry in logged]
    weights = digest(*(value.numpy() for value in trainer.model.state_dict().values()))
    return {"steps": steps, "metrics": metrics, "weights": weights}


def stops_after(step: int) -> Any:
    from transformers import TrainerCallback

    class Stop(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = state.global_step >= step

    return Stop()


def looped(name: str) -> Record:
    """Twelve steps of a `Session`, with rewards of known rates."""
    try:
        from budgetalloc.session import Session
    except ImportError:
        from budgetalloc.training.session import Session

    rng, steps, metrics = np.random.default_rng(0), [], []
    session = Session(policy_of(name), ["reward"], pool=range(40), quiet=True)
    for at in range(STEPS):
        session.begin(list(range(8 * at % 40, 8 * at % 40 + 8)), 64, 8)
        asked: list[Any] = []
        while ids_R := session.request():
            rewards_R = (rng.random(len(ids_R)) < np.array(ids_R) / 40).astype(float)
            session.observe(ids_R, rewards_R, np.ones(len(ids_R)))
            asked += ids_R
        ended = session.end()
        steps.append({"ids": digest(np.array(asked)), "advantages": digest(ended.advantages_R)})
        metrics.append(dict(ended.metrics))
    return {"steps": steps, "metrics": metrics}


def simulated(name: str) -> Record:
    import budgetalloc as ba

    world = ba.Replay(ba.testing.log_of(ba.testing.three_kinds(), steps=20), seed=0)
    rows = list(ba.simulate(policy_of(name), world, 64, steps=STEPS, prompts=8))
    return {"steps": [], "metrics": [{k: x for k, x in row.items() if isinstance(x, int | float)} for row in rows]}


def digest(*arrays: Any) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def cases(processes: int) -> Iterator[tuple[str, Callable[[Path], Record]]]:
    """The names of all cases, and what runs them in a folder."""
    for name in POLICIES:
        if processes == 2:
            yield f"two processes {name}", lambda folder, name=name: trained(name, "binary", folder)
            continue
        for reward in REWARDS:
            yield f"trl {name} {reward}", lambda folder, name=name, reward=reward: trained(name, reward, folder)
        yield f"resumed {name}", lambda folder, name=name: trained(name, "binary", folder, resume=True)
        yield f"session {name}", lambda folder, name=name: looped(name)
        yield f"simulate {name}", lambda folder, name=name: simulated(name)


def record(out: Path, only: str) -> None:
    """Runs all cases with the budgetalloc that Python finds, and writes a line for each."""
    rank, processes = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    for name, run in cases(processes):
        if only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                result = run(Path(folder))
            except Exception as error:  # both sides may refuse alike
                result = {"error": f"{type(error).__name__}: {error}"}
        with out.with_suffix(f".{processes}.{rank}").open("a") as file:
            file.write(json.dumps({"case": f"{name} rank {rank}", **result}) + "\n")


def recorded(tree: Path, out: Path, only: str) -> dict[str, Record]:
    """The records of the budgetalloc in a tree, by case."""
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    words = [str(Path(__file__)), "--record", str(out), "--only", only]
    for launch in ([], ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]):
        subprocess.run([sys.executable, *launch, *words], env=environment, cwd=tree, check=True, stdout=sys.stderr)
    lines = [json.loads(line) for path in sorted(out.parent.glob(f"{out.name}.*")) for line in path.open()]
    return {line.pop("case"): line for line in lines}


def differences(before: Record, now: Record) -> Iterator[str]:
    """What differs between two records of a case, in words."""
    if before.get("error") != now.get("error"):
        yield f"error: {before.get('error')} | {now.get('error')}"
    if before.get("weights") != now.get("weights"):
        yield "the final weights"
    for what in ("steps", "metrics"):
        for at, (old, new) in enumerate(zip(before.get(what, []), now.get(what, []), strict=False)):
            keys = sorted(key for key in old.keys() & new.keys() if "seconds" not in key)
            if unequal := [key for key in keys if old[key] != new[key]]:
                pairs = ", ".join(f"{key} {old[key]} | {new[key]}" for key in unequal[:4])
                yield f"{what}, step {at + 1}, {len(unequal)} of {len(keys)}: {pairs}"
                break
        if len(before.get(what, [])) != len(now.get(what, [])):
            yield f"the number of {what}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", default="HEAD", help="the commit to compare with")
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.record is not None:
        record(args.record, args.only)
        return
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--detach", str(tree), args.commit], cwd=ROOT, check=True)
        try:
            before = recorded(tree, Path(folder) / "before", args.only)
            now = recorded(ROOT, Path(folder) / "now", args.only)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    wrong = 0
    for name in before:
        found = list(differences(before[name], now[name]))
        wrong += bool(found)
        print(f"{'DIFFERENT' if found else 'equal    '} {name}" + "".join(f"\n    {each}" for each in found))
    print(f"{len(before) - wrong} of {len(before)} cases are equal to the bit")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()

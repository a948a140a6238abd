"""Golden runs: does a change leave every number as it was?

    python benchmarks/golden.py HEAD~1        # a commit, in a worktree, against the present files
    python benchmarks/golden.py HEAD~1 --only adaptive

Figures differ between processors, so nothing is stored: both sides run here, one after the other. Each case trains a
tiny Llama for 12 steps with TRL, in one or two processes, or for 4 with verl, or runs a `Session` or `simulate`. A run
that is resumed had been lost 2 steps after its checkpoint. Compared to the bit are, step by step, the prompts and the
advantages that the loss gets, all metrics that both sides log (but seconds), and the hash of the final weights. The
exit status is 1 if anything differs. verl runs in `.venv-verl`, or in the Python named by BUDGETALLOC_VERL_PYTHON.
"""

import argparse
import contextlib
import hashlib
import importlib
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
STEPS, SAVED_AT, LOST_AT = 12, 6, 8
VERL = Path(os.environ.get("BUDGETALLOC_VERL_PYTHON", ROOT / ".venv-verl/bin/python"))
VERL_POLICIES = ("uniform", "adaptive", "knapsack")
VERL_DATA = {"binary": "exact", "graded": "graded"}  # the sets of tests/verl/runs.py
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
    "named": [low_digit, long_enough],  # with success=
}


def trained(name: str, reward: str, folder: Path, resume: bool = False) -> Record:
    """Twelve steps of TRL's trainer. `resume`: the run ends after step 8, and another one continues from step 6."""
    sys.path.insert(0, str(ROOT / "tests" / "trl"))
    import torch
    from tiny_model import SETTINGS, fresh_model, make_tokenizer, rows
    from trl import GRPOConfig, GRPOTrainer

    from budgetalloc.trl import AdaptiveGRPOCallback

    torch.set_num_threads(1)
    steps: list[Record] = []
    options: Record = {"success": "low_digit"} if reward == "named" else {}

    def run(last: int, checkpoint: str | None) -> Any:
        settings = {**SETTINGS, "output_dir": str(folder / "run"), "max_steps": STEPS, "learning_rate": 1e-3}
        settings["lr_scheduler_type"] = "constant"
        settings |= {"save_strategy": "steps", "save_steps": SAVED_AT} if resume else {}
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
        trainer.add_callback(AdaptiveGRPOCallback(trainer, policy_of(name), **options))
        if last < STEPS:
            trainer.add_callback(stops_after(last))
        with contextlib.redirect_stdout(sys.stderr):
            trainer.train(resume_from_checkpoint=checkpoint)
        return trainer

    if resume:
        run(LOST_AT, None)
        trainer = run(STEPS, str(folder / "run" / f"checkpoint-{SAVED_AT}"))
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
    trl = "trl" if processes == 1 else "two processes"
    for name in POLICIES:
        for reward in REWARDS:
            yield f"{trl} {name} {reward}", lambda folder, name=name, reward=reward: trained(name, reward, folder)
        yield f"{trl} {name} resumed", lambda folder, name=name: trained(name, "binary", folder, resume=True)
        if processes == 1:
            yield f"session {name}", lambda folder, name=name: looped(name)
            yield f"simulate {name}", lambda folder, name=name: simulated(name)


def record(out: Path, only: str) -> None:
    """Runs all cases but verl's with the budgetalloc that Python finds, and writes a line for each."""
    rank, processes = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    for name, run in cases(processes):
        if only not in name:
            continue
        try:
            result = run(Path(f"{out} {name}"))  # all processes share it
        except Exception as error:  # both sides may refuse alike
            result = {"error": f"{type(error).__name__}: {error}"}
        write(out.with_suffix(f".{processes}.{rank}"), f"{name} rank {rank}" if processes > 1 else name, result)


def write(path: Path, name: str, result: Record) -> None:
    with path.open("a") as file:
        file.write(json.dumps({"case": name, **result}) + "\n")


def verl_cases() -> dict[str, list[str]]:
    """The names of verl's cases, and what each changes in verl's configuration."""
    attached = ["trainer.v1.trainer_mode=budgetalloc", "trainer.total_training_steps=4"]
    return {
        f"verl {policy} {reward}": [
            *attached,
            f"+budgetalloc.policy={policy}",
            f"data.train_files=FOLDER/{data}.parquet",
        ]
        for policy in VERL_POLICIES
        for reward, data in VERL_DATA.items()
    }


def record_verl(out: Path, only: str, tree: str) -> None:
    """Runs verl's cases as tests/verl does, but with the budgetalloc of a tree, and writes a line for each."""
    sys.path.insert(0, str(ROOT / "tests" / "verl"))
    import runs

    wanted = {name.replace(" ", "_"): changes for name, changes in verl_cases().items() if only in name}
    folder = Path(f"{out}_verl")
    folder.mkdir()
    os.environ.update(runs.ENVIRONMENT)
    os.environ["PYTHONPATH"] = os.pathsep.join([tree, *os.environ["PYTHONPATH"].split(os.pathsep)])
    with runs.a_ray() as ray:
        ray.get(ray.remote(num_cpus=1)(verl_trained).remote(folder, wanted))
    seen = json.loads((folder / "seen.json").read_text())
    for name in wanted:
        write(out.with_suffix(".verl"), name.replace("_", " "), seen[name][0])


def verl_trained(folder: Path, wanted: dict[str, list[str]]) -> None:
    """Trains all of these, and records what each step trained on.

    verl's rows have the order in which they ended. Sorted, their sums are the same in each run. Metrics that are
    computed from them before are rounded.
    """
    import pandas
    import ray
    import transfer_queue

    runs = importlib.import_module("runs")  # ruff sorts `import runs` by whether a folder of that name exists

    def rows(batch: Any, *fields: str) -> list[tuple[Any, ...]]:
        data = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(fields))
        return list(zip(*([row.tolist() for row in data[name].unbind()] for name in fields), strict=True))

    def listen(trainer: Any, logged: list[Any]) -> Callable[[], None]:
        restore, steps = own_listen(trainer, logged), []
        sample, update = trainer.replay_buffer.sample, trainer._update_actor

        def sorted_sample(*args: Any, **named: Any) -> Any:
            batch, metrics = sample(*args, **named)
            if batch.partition_id == "train":
                found = rows(batch, "prompts", "responses")
                batch.reorder(sorted(range(len(found)), key=found.__getitem__))
            return batch, metrics

        def recorded_update(batch: Any, metrics: Any) -> Any:
            names = ("prompts", "responses", "advantages")
            columns = zip(*sorted(rows(batch, *names)), strict=True)
            steps.append({name: digest(repr(column).encode()) for name, column in zip(names, columns, strict=True)})
            return update(batch, metrics=metrics)

        def ended() -> None:
            restore()
            compared = "budgetalloc/", "critic/"
            metrics = [{k: round(x, 12) for k, x in entry.items() if k.startswith(compared)} for entry in logged]
            model = ray.get(ray.get_actor("hf_server_0").__ray_call__.remote(lambda server: server.model.state_dict()))
            weights = digest(*(value.numpy() for value in model.values()))
            logged[:] = [{"steps": steps, "metrics": metrics, "weights": weights}]

        trainer.replay_buffer.sample, trainer._update_actor = sorted_sample, recorded_update
        return ended

    own_listen, runs.listen = runs.listen, listen
    runs.make_data(folder)
    once = pandas.read_parquet(folder / "exact.parquet")  # the answers to a prompt with two rows come to either group
    once.assign(data_source="graded").to_parquet(folder / "graded.parquet")
    runs.several(folder, wanted)


def recorded(tree: Path, out: Path, only: str) -> dict[str, Record]:
    """The records of the budgetalloc in a tree, by case."""
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    words = [str(Path(__file__)), "--record", str(out), "--only", only]
    two = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    launches = [
        (dict(cases(1)), [sys.executable, *words]),
        (dict(cases(2)), [sys.executable, *two, *words]),
        (verl_cases(), [str(VERL), *words, "--verl", str(tree)]),
    ]
    for names, command in launches:
        if not any(only in name for name in names):
            continue
        if command[0] == str(VERL) and not VERL.exists():
            print(f"verl is left out: {VERL} does not exist (make .venv-verl/installed)")
            continue
        subprocess.run(command, env=environment, cwd=tree, check=True, stdout=sys.stderr)
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
    parser.add_argument("--verl", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.verl is not None:
        record_verl(args.record, args.only, args.verl)
        return
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
        refused = f": both raise {before[name]['error']}" if not found and "error" in before[name] else ""
        print(f"{'DIFFERENT' if found else 'equal    '} {name}{refused}" + "".join(f"\n    {each}" for each in found))
    print(f"{len(before) - wrong} of {len(before)} cases are equal to the bit")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()

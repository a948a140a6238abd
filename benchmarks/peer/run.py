"""Plain GRPO, trl-cgrpo 0.2.0 and budgetalloc: the same model, data and rollouts, in one environment with TRL 1.14.

    python benchmarks/peer/run.py                  # makes .venv-peer, runs what results.jsonl lacks, prints the tables
    python benchmarks/peer/run.py --tables         # the tables alone
    python benchmarks/peer/run.py --cost           # seconds a step, the arms taking turns on an otherwise idle machine

Rollouts are counted in TRL's generation: rows that trl-cgrpo pads are not counted, and those of its calibration are.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENVIRONMENT = ROOT / ".venv-peer"
sys.path.insert(0, str(ROOT))  # budgetalloc itself, from this repository
RATES, SEEDS, BUDGET = (1e-4, 3e-4, 6e-4), (0, 1), 150 * 256
CALIBRATION = 4  # prompts of each of the 24 skills
# A step has 256 rows, prompts x the widest group. trl-cgrpo generates only some of them, and so makes more steps of the
# same rollouts; with 24 or 88 prompts it generates about 256. Its grid up to 8 is the group size of the first arm.
ARMS: dict[str, dict[str, Any]] = {
    "GRPO": {"prompts": 32, "generations": 8},
    "GRPO, groups of 32": {"prompts": 8, "generations": 32},
    "trl-cgrpo": {"prompts": 8, "generations": 32, "budget_grid": [2, 4, 8, 16, 32]},  # its default grid
    "trl-cgrpo, 24 prompts": {"prompts": 24, "generations": 32, "budget_grid": [2, 4, 8, 16, 32]},
    "trl-cgrpo, grid to 8": {"prompts": 32, "generations": 8, "budget_grid": [2, 4, 8]},
    "trl-cgrpo, grid to 8, 88 prompts": {"prompts": 88, "generations": 8, "budget_grid": [2, 4, 8]},
    "budgetalloc": {"prompts": 32, "generations": 8},
}
Job = tuple[str, float, int]  # arm, learning rate, seed


def run(job: Job, steps: int = 1000, budget: int = BUDGET, eval_every: int = 10) -> dict[str, Any]:
    """One training run, until `budget` rollouts were generated for training; its curve as a line of the results."""
    import trl_cgrpo
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    sys.path.insert(0, str(ROOT / "benchmarks" / "learning"))
    import train as testbed

    from budgetalloc import policies
    from budgetalloc.cli.testbed import skills
    from budgetalloc.trl import AdaptiveGRPOCallback

    arm, rate, seed = job
    made = {"generated": 0, "calibration": 0, "tokens": 0}
    after = {0: dict(made)}  # by step
    own = GRPOTrainer._generate_single_turn

    def counted(trainer: Any, *args: Any, **named: Any) -> Any:
        answers = own(trainer, *args, **named)
        made["generated"] += len(answers[0])
        made["tokens"] += sum(len(ids) for ids in answers[0])
        return answers

    class Stop(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            after[state.global_step] = dict(made)
            control.should_training_stop |= made["generated"] - made["calibration"] >= budget

    def attach(trainer: Any) -> None:
        trainer.callback_handler.callbacks.insert(0, Stop())  # the curve's last point is taken after it
        if arm == "budgetalloc":
            trainer.add_callback(AdaptiveGRPOCallback(trainer, policies.sampled(groups=2, seed=seed)))
        if arm.startswith("trl-cgrpo"):
            calibrate = trainer.calibrate

            def calibrate_and_count() -> Any:
                before = made["generated"]
                calibrated = calibrate()
                made["calibration"] += made["generated"] - before
                return calibrated

            trainer.calibrate = calibrate_and_count

    rows = skills.pool(80, seed)
    testbed.GRPOTrainer, testbed.GRPOConfig = GRPOTrainer, GRPOConfig  # it makes the trainer by these two names
    if arm.startswith("trl-cgrpo"):
        trained = {row["prompt_id"] for row in rows}
        fresh = [row for row in skills.pool(200, seed + 1000) if row["prompt_id"] not in trained]
        taught = [row for row in fresh if not skills.skill_of(row["prompt_id"]).is_trap]  # a trap has no right answer
        some = [
            row
            for _, same in itertools.groupby(taught, key=lambda row: row["skill"])
            for row in itertools.islice(same, CALIBRATION)
        ]
        calibration = Dataset.from_list([row | {"answer": skills.answer(row["prompt"])} for row in some])
        testbed.GRPOConfig = trl_cgrpo.CGRPOConfig  # type: ignore[attr-defined]
        testbed.GRPOTrainer = partial(  # type: ignore[attr-defined]
            trl_cgrpo.CGRPOTrainer, calibration_dataset=calibration, answer_extractor=lambda text: text
        )
    GRPOTrainer._generate_single_turn = counted
    try:
        training = testbed.train(  # type: ignore[attr-defined]
            attach,
            steps=steps,
            learning_rate=rate,
            seed=seed,
            rows=rows,
            held_out_rows=skills.held_out(20),
            eval_every=eval_every,
            threads=1,
            progress=False,
            **ARMS[arm],
        )
    finally:
        GRPOTrainer._generate_single_turn = own
    curve = [
        {"step": point.step, "success": round(point.expected, 5), "seconds": point.seconds} | after[point.step]
        for point in training.curve
    ]
    widths = [entry["cgrpo/mean_k"] for entry in training.trainer.state.log_history if "cgrpo/mean_k" in entry]
    return {
        "arm": arm,
        "rate": rate,
        "seed": seed,
        "mean_k": statistics.fmean(widths) if widths else None,
        **{name: [point[name] for point in curve] for name in curve[0]},
    }


def read(path: Path) -> list[dict[str, Any]]:
    """The runs in a results file; a line torn by a kill is left out, and its run is repeated."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def at(row: dict[str, Any], rollouts: float, calibration: bool = True) -> float:
    """Held-out success after so many rollouts, between the points of the curve; of training alone, or all of them."""
    import numpy as np

    free = 0 if calibration else np.array(row["calibration"])
    return float(np.interp(rollouts, np.array(row["generated"]) - free, row["success"]))


def tables(rows: list[dict[str, Any]]) -> str:
    """Success of each arm at each learning rate, over its seeds."""
    import numpy as np

    groups: dict[tuple[str, float], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["arm"], row["rate"]].append(row)
    grid = np.linspace(0, BUDGET, 301)
    mean = statistics.fmean
    ends = {rate: mean(at(row, BUDGET) for row in groups["GRPO", rate]) for rate in RATES if ("GRPO", rate) in groups}
    goal = max(ends.values(), default=float("nan"))
    lines = [
        f"Goal: the final success of GRPO with its best rate, {goal:.3f}. The rollouts of calibration count, except in "
        'the column "calibration free".',
        "",
        "| arm | rate | seeds | end | end, calibration free | mean over the run | goal after | steps | a prompt |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for arm, rate in sorted(groups, key=lambda each: (list(ARMS).index(each[0]), each[1])):
        runs = groups[arm, rate]
        means = np.mean([[at(row, x) for x in grid] for row in runs], axis=0)
        reached = np.flatnonzero(means >= goal)
        widths = [row["mean_k"] or ARMS[arm]["generations"] for row in runs]
        lines.append(
            f"| {arm} | {rate:g} | {len(runs)} | {mean(at(row, BUDGET) for row in runs):.3f} | "
            f"{mean(at(row, BUDGET, calibration=False) for row in runs):.3f} | {means.mean():.3f} | "
            + (f"{grid[reached[0]] / BUDGET:.0%}" if len(reached) else "never")
            + f" | {mean(row['step'][-1] for row in runs):.0f} | "
            + ("" if arm == "budgetalloc" else f"{mean(widths):.1f}")
            + " |"
        )
    return "\n".join(lines)


def cost(turns: int = 3, steps: int = 20, first: int = 5) -> str:
    """Seconds a step: medians over turns, in which every arm trains for so many steps after its first ones."""
    seconds_of: dict[str, list[float]] = defaultdict(list)
    made: dict[str, float] = {}
    for turn, arm in itertools.product(range(turns), ARMS):
        row = run((arm, 3e-4, turn), steps=first + steps, eval_every=first)
        # Calibration comes before the first step, so before the second point.
        seconds_of[arm].append((row["seconds"][-1] - row["seconds"][1]) / steps)
        made[arm] = (row["generated"][-1] - row["generated"][1]) / steps
    lines = ["| arm | seconds a step | rollouts a step | milliseconds a rollout |", "|---|---|---|---|"]
    for arm, seconds in seconds_of.items():
        middle = statistics.median(seconds)
        lines.append(f"| {arm} | {middle:.3f} | {made[arm]:.0f} | {1000 * middle / made[arm]:.2f} |")
    return "\n".join(lines)


def in_own_environment() -> None:
    """Runs the rest in .venv-peer, which is made on first use."""
    if Path(sys.prefix) == ENVIRONMENT:
        return
    python, wanted = ENVIRONMENT / "bin/python", (HERE / "requirements.txt").read_text()
    installed = ENVIRONMENT / "installed"
    if not installed.exists() or installed.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        torch = next(line for line in wanted.splitlines() if line.startswith("torch=="))
        subprocess.run([*pip, torch], check=True)  # first, so that a local build for the CPU is taken if there is one
        subprocess.run([*pip, "-r", HERE / "requirements.txt"], check=True)
        installed.write_text(wanted)
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.execv(python, [str(python), __file__, *sys.argv[1:]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", action="append", choices=ARMS, help="default: all")
    parser.add_argument("--rate", type=float, action="append", help="default: 1e-4, 3e-4, 6e-4")
    parser.add_argument("--seed", type=int, action="append", help="default: 0 and 1")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--out", type=Path, default=HERE / "results.jsonl")
    parser.add_argument("--tables", action="store_true", help="of the results as they are")
    parser.add_argument("--cost", action="store_true", help="seconds a step")
    args = parser.parse_args()
    in_own_environment()
    if args.cost:
        print(cost())
        return
    done = {(row["arm"], row["rate"], row["seed"]) for row in read(args.out)}
    jobs = [(a, r, s) for s in args.seed or SEEDS for r in args.rate or RATES for a in args.arm or ARMS]
    todo = [] if args.tables else [job for job in jobs if job not in done]
    if args.out.exists() and not args.out.read_bytes().endswith(b"\n"):
        with args.out.open("a") as file:
            file.write("\n")  # a kill tore the last line: keep it apart from the next
    if todo:
        with multiprocessing.get_context("spawn").Pool(args.jobs) as processes:
            for row in processes.imap_unordered(run, todo):
                with args.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(f"{row['arm']}, rate {row['rate']:g}, seed {row['seed']}: {row['success'][-1]:.3f}", flush=True)
            processes.close()
            processes.join()
    print(tables(read(args.out)))


if __name__ == "__main__":
    main()

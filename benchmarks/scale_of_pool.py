"""Steps over large pools: a decision over a `Pool`, made once, against one over the list of its ids.

    python benchmarks/scale_of_pool.py [--sizes 10000 100000 1000000 10000000] [--lists-up-to 1000000]

Of all prompts, half have a history; a step spends 8,192 rollouts. Times are medians of processor time, and both kinds
of steps take turns in one run: *decide* is `begin` and `request`, *observe* is `observe` and `end`. *Bytes a prompt*
is the growth of the process by ids, pool and a policy that has seen half of the prompts; *save* is `state_dict` and
`save_state` then.
"""

import argparse
import ctypes
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import budgetalloc as ba
from budgetalloc.beliefs.ids import Id

ROLLOUTS, SEEN = 8_192, 0.5
POLICIES = {"adaptive": ba.adaptive, "knapsack": ba.knapsack, "vade": ba.methods.vade}


def resident() -> int:
    """Bytes of memory that the process holds (Linux), without what it has freed."""
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def remember(policy: ba.Policy, ids: Sequence[Id], steps: int = 100) -> None:
    """Gives the policy a history of `SEEN` of the prompts, four rollouts each, in the last `steps` steps."""
    rng = np.random.default_rng(0)
    seen = rng.choice(len(ids), int(SEEN * len(ids)), replace=False)
    successes = rng.binomial(4, rng.random(seen.size)).astype(float)
    history = {
        "step": steps,
        "ids": [ids[at] for at in seen.tolist()],
        "evidence": np.stack([successes, 4 - successes, np.zeros(seen.size)], axis=1),
        "still": np.zeros((seen.size, 2)),
        "last": rng.integers(0, steps, seen.size),
        "seen_before": seen.size,
    }
    policy.load_state_dict(policy.state_dict() | history)


def step(policy: ba.Policy, ids_P: Sequence[Id], rng: np.random.Generator) -> tuple[float, float]:
    """Milliseconds of processor time to decide and to observe one step."""
    budget = ba.Budget(ROLLOUTS, floor=0, cap=64, min_group=policy.needs.min_group)
    started = time.process_time()
    opened = policy.begin(ids_P, budget)
    counts_P = opened.request()
    decided = time.process_time()
    ids_R = opened.ids_P.repeat(counts_P)
    rewards_R = (rng.random(len(ids_R)) < 0.5).astype(float)
    before = time.process_time()
    opened.observe(ids_R, rewards_R)
    opened.end()
    return 1000 * (decided - started), 1000 * (time.process_time() - before)


def measure(size: int, with_list: bool, steps: int) -> None:
    """Prints a row for each policy."""
    start = resident()
    ids: list[Id] = [f"prompt-{n:08d}" for n in range(size)]
    made = time.process_time()
    pool = ba.Pool(ids)
    assert len(pool.keys_P) == size
    made = time.process_time() - made
    for name, build in POLICIES.items():
        held, policy, rng = resident() - start, build(), np.random.default_rng(0)
        remember(policy, ids)
        step(policy, pool, rng)  # the first finds the policy's rows
        bytes_each = (resident() - start) / size if name == "adaptive" else None
        times = [(step(policy, pool, rng), step(policy, ids, rng) if with_list else None) for _ in range(steps)]
        decide, observe = (statistics.median(each[k] for each, _ in times) for k in (0, 1))
        of_list = statistics.median(each[0] for _, each in times if each) if with_list else float("nan")
        started = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            ba.save_state(Path(folder) / "state.npz", policy.state_dict())
        saved = time.process_time() - started
        print(
            f"{size:>11,}{name:>10}{of_list:>10.1f}{decide:>9.1f}{of_list / decide:>7.1f}{observe:>9.1f}{saved:>8.2f}"
            + (f"{bytes_each:>9.0f}{held / size:>9.0f}{made:>8.2f}" if bytes_each else ""),
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**4, 10**5, 10**6, 10**7])
    parser.add_argument("--lists-up-to", type=int, default=10**6, help="decide over lists too, up to so many prompts")
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    print(f"{'':>21}{'decide, ms':^26}{'observe':>9}{'save':>8}{'bytes a prompt':>18}{'pool':>8}")
    print(f"{'prompts':>11}{'policy':>10}{'list':>10}{'pool':>9}{'ratio':>7}{'ms':>9}{'s':>8}", end="")
    print(f"{'in all':>9}{'of pool':>9}{'s':>8}")
    for size in options.sizes:
        measure(size, size <= options.lists_up_to, options.steps)


if __name__ == "__main__":
    main()

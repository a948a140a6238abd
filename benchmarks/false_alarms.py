"""Is a healthy run warned of its beliefs? Runs of `Session` on ten kinds of pools, and on names that mean nothing.

    python benchmarks/false_alarms.py --seeds 20      # 200 healthy runs of 120 steps

By `adaptive()`, as it attaches. `rounds=3` draws alike too, and `first` is the smallest group.
"""

import argparse
import logging
from collections.abc import Sequence

import numpy as np

import budgetalloc as ba


def beta(a, b):
    """Rates that stay as they are, drawn from this distribution."""

    def rates(prompts, rng):
        rate_P = rng.beta(a, b, prompts)
        return lambda at: rate_P

    return rates


def moving(prompts, rng):
    """Log-odds that rise, each at its own speed."""
    start_P, speed_P = rng.normal(-1, 2, prompts), rng.normal(0.03, 0.02, prompts)
    return lambda at: 1 / (1 + np.exp(-(start_P + speed_P * at)))


def quick(prompts, rng):
    """Twenty skills, each of which goes from failing to passing within 20 steps."""
    begins, skill_P = rng.uniform(0, 150, 20), rng.integers(0, 20, prompts)
    return lambda at: (0.05 + 0.9 * np.clip((at - begins) / 20, 0, 1))[skill_P]


HEALTHY = {
    "alike, met once": (8000, 128, beta(8, 12)),
    "alike, met twice": (600, 128, beta(4, 6)),
    "very alike": (600, 128, beta(20, 30)),
    "very alike, met once": (8000, 128, beta(20, 30)),
    "one rate for all": (500, 128, beta(1e6, 1e6)),
    "u-shaped": (2000, 256, beta(0.3, 0.3)),
    "u-shaped, met at every step": (96, 160, beta(0.3, 0.3)),
    "hard, small steps": (3000, 64, beta(1, 3)),
    "all learn, met at every step": (96, 160, moving),
    "skills learned quickly": (500, 128, quick),
}


def shuffled(prompts, rng):
    """Names that belong to other prompts at each step."""
    rate_P = rng.beta(0.3, 0.3, prompts)
    return lambda at: rng.permutation(rate_P)


def simulated(kind, steps, seed=0, rounds=1, first=1):
    """The steps of fallback in a run of such a pool, all prompts drawn alike."""
    prompts, rollouts, rates = kind
    policy = ba.adaptive(explore=1, rounds=rounds)
    session = ba.Session(policy, ["reward"], pool=list(range(prompts)), min_group=first)
    rng, fallen = np.random.default_rng(seed), 0.0
    rates_at = rates(prompts, rng)
    for at in range(steps):
        session.begin([], rollouts=rollouts, group=8)
        rate_P = rates_at(at)
        while ids := session.request():
            rewards = (rng.random(len(ids)) < rate_P[np.array(ids)]).astype(float)
            session.observe(ids, rewards, lengths_R=[1] * len(ids))
        fallen += session.end().metrics["fallback"]
    return fallen


class _Said(logging.Handler):
    """The messages of the callback."""

    def __init__(self):
        super().__init__()
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args(argv)
    logger, said = logging.getLogger("budgetalloc"), _Said()
    logger.addHandler(said)
    logger.propagate = False
    print(f"{args.seeds} runs of {args.steps} steps; the last two have names that mean nothing")
    pools = HEALTHY | {"shuffled, met seldom": (2000, 256, shuffled), "shuffled, met often": (96, 160, shuffled)}
    for name, kind in pools.items():
        fallen = sum(simulated(kind, args.steps, seed) for seed in range(args.seeds))
        print(f"{name:<32} {len(said.messages):>3} messages, {fallen:.0f} steps of fallback", flush=True)
        said.messages.clear()


if __name__ == "__main__":
    main()

"""Mixtures of five environments: success of each at the end, with static shares, published bandits and `mixture=`.

    python benchmarks/learning/environments.py --seed 100 --steps 60       # one tuning seed
    python benchmarks/learning/environments.py                            # the table's seeds, 3 to 12, round by round
    python benchmarks/learning/environments.py --table

The environments are made of the demo's skills, whose prompts are a letter and four digits:

- `solved` and `slow` share the letter d. Prompts with an even first digit ask for its common operation (right 95 times
  in 100 before training), those with an odd one for its rare operation (5 in 100). Training one makes the model forget
  the other, until it tells them apart.
- `quick` and `helper` are the odd and the even half of letter m (34 in 100), so that training one teaches the other.
- `hopeless` is a trap: its reward is a coin of 0.12, whatever the answer.

Success is the exact probability of the right answer to held-out prompts of the four environments that can be learned,
and their mean weighs them equally. All policies have one learning rate, which was not tuned for any of them. Runs in
`environments.jsonl` are not repeated. Seeds 0 to 2 are not in the table: on seed 2, `learn` starved `slow`, which had
no success in the first steps, and the rule was changed. Its runs before that are named `learn, first rule`.
Seeds from 100 were for tuning.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from language import Rows
from run import read  # beside this file
from table import with_interval

import budgetalloc as ba
from budgetalloc.cli.testbed import skills
from budgetalloc.cli.testbed.skills import ALPHABET, ANSWER_LENGTH, OPERATIONS, STRINGS, WEIGHTS, is_trap
from budgetalloc.policies import sampled

__all__ = ["ALPHABET", "ANSWER_LENGTH", "WEIGHTS", "answer", "held_out", "is_trap", "make_reward", "pool"]

SIZES = {"solved": 300, "slow": 100, "quick": 60, "helper": 160, "hopeless": 300}
LEARNABLE = ("solved", "slow", "quick", "helper")
RATE, ROLLOUTS, STEPS = 3e-4, 256, 100
SEEDS = range(3, 13)
RESULTS = Path(__file__).with_name("environments.jsonl")
_LETTER = {"solved": "d", "slow": "d", "quick": "m", "helper": "m", "hopeless": "z"}
_ODD = {"slow": True, "solved": False, "quick": True, "helper": False}


def environment(prompt_id: int) -> str:
    """The environment of a prompt."""
    letter, odd = skills.skill_of(prompt_id).letter, (prompt_id % STRINGS) // 1000 % 2 == 1
    return next(name for name, of in _LETTER.items() if of == letter and _ODD.get(name, odd) == odd)


def answer(text: str) -> str:
    """The one answer with reward 1."""
    number = skills.prompt_id(text)
    skill = skills.skill_of(number)
    return OPERATIONS[skill.wrong if environment(number) == "slow" else skill.right](text[1:-1])


def make_reward(seed: int = 0, rank: int = 0) -> Callable[..., list[float]]:
    """A reward function with TRL's signature: 1.0 for the right answer, else 0.0; in `hopeless`, the trap's coin."""
    coins = skills.make_reward(seed, rank)

    def reward(completions: Sequence[str], prompt_id: Sequence[int], **columns: Any) -> list[float]:
        tossed = coins(completions, prompt_id, **columns)
        texts = [f"{skills.skill_of(i).letter}{i % STRINGS:04d}=" for i in prompt_id]
        return [
            toss if is_trap(i) else float(said == answer(text))
            for said, text, i, toss in zip(completions, texts, prompt_id, tossed, strict=True)
        ]

    return reward


def _rows(sizes: dict[str, int], rng: np.random.Generator, held: bool) -> Rows:
    rows: Rows = []
    for name, size in sizes.items():
        skill = next(each for each in skills.SKILLS if each.letter == _LETTER[name])
        every = (f"{n:04d}" for n in range(STRINGS))
        fits = [d for d in every if skills.is_held_out(d) == held and skill.is_clear(d)]
        fits = [d for d in fits if environment(skills.prompt_id(f"{skill.letter}{d}=")) == name]
        for at in rng.choice(len(fits), size=size, replace=False).tolist():
            text = f"{skill.letter}{fits[at]}="
            rows.append({"prompt": text, "prompt_id": skills.prompt_id(text), "skill": skill.letter, "domain": name})
    return rows


def pool(per_skill: int = 0, seed: int = 0) -> Rows:
    """Prompts to train on, as many of each environment as `SIZES` says."""
    return _rows(SIZES, np.random.default_rng([seed, 0]), held=False)


def held_out(per_skill: int = 40, seed: int = 0) -> Rows:
    """Prompts to measure on, as many of each environment that can be learned; their digits are in no pool."""
    return _rows(dict.fromkeys(LEARNABLE, per_skill), np.random.default_rng([seed, 1]), held=True)


def _static(*parts: float) -> dict[str, Any]:
    """Quotas of a rollout more or less than these shares, in the order of `SIZES`."""
    shares = [part / sum(parts) for part in parts]
    quotas = {name: (max(share - 0.004, 0.0), share + 0.004) for name, share in zip(SIZES, shares, strict=True)}
    return {"domain": "domain", "quotas": quotas}


POLICIES: dict[str, tuple[Callable[[int], ba.Policy], dict[str, Any]]] = {
    "learn": (lambda seed: sampled(groups=2, seed=seed), {"domain": "domain", "mixture": "learn"}),
    "even": (lambda seed: sampled(groups=2, seed=seed), _static(1, 1, 1, 1, 1)),
    "sampled": (lambda seed: sampled(groups=2, seed=seed), {}),
    "no hopeless": (lambda seed: sampled(groups=2, seed=seed), _static(1, 1, 1, 1, 0.08)),
    "slow half": (lambda seed: sampled(groups=2, seed=seed), _static(1, 4, 1, 1, 1)),
    "two thirds to d": (lambda seed: sampled(groups=2, seed=seed), _static(4, 4, 2, 2, 0.25)),
    "proportional": (lambda seed: sampled(groups=2, seed=seed), _static(*SIZES.values())),
    "sec": (lambda seed: ba.methods.sec(domain_of=environment, seed=seed), {}),
    "dump": (lambda seed: ba.methods.dump(domain_of=environment, seed=seed), {}),
    "pac": (lambda seed: ba.methods.pac(domain_of=environment, seed=seed), {}),
}
STATIC = ("even", "no hopeless", "slow half", "two thirds to d", "proportional")


def by_environment(right_P: Sequence[float]) -> list[float]:
    """The mean of each part of equal size, for the held-out prompts of each environment that can be learned."""
    return [round(float(x), 4) for x in np.reshape(right_P, (len(LEARNABLE), -1)).mean(axis=1)]


def run(policy: str, seed: int, steps: int) -> dict[str, Any]:
    """One training run as a line of the results file: success of each environment before and after, and the shares."""
    from train import train

    from budgetalloc.trl import AdaptiveGRPOCallback

    build, options = POLICIES[policy]
    rows, measured, counts = pool(seed=seed), held_out(), []

    def attach(trainer: Any) -> None:
        callback = AdaptiveGRPOCallback(trainer, build(seed), **options)
        trainer.add_callback(callback)

        class Count(type(callback).__mro__[1]):  # type: ignore[misc]
            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                names = [environment(x) for x in callback.batch.ids_R]
                counts.append([names.count(name) for name in SIZES])

        trainer.add_callback(Count())

    result = train(
        attach,
        steps=steps,
        eval_every=10,
        learning_rate=RATE,
        seed=seed,
        rows=rows,
        held_out_rows=measured,
        language=sys.modules[__name__],
        threads=1,
        progress=False,
    )
    right_2P = (result.start_P, result.end_P)
    start, end = (dict(zip(LEARNABLE, by_environment(right_P), strict=True)) for right_P in right_2P)
    curve = [round(point.expected, 4) for point in result.curve]
    shares = [[round(float(x), 3) for x in np.mean(part, axis=0) / ROLLOUTS] for part in np.array_split(counts, 5)]
    return {
        "policy": policy,
        "seed": seed,
        "steps": steps,
        "curve": curve,
        "shares": shares,
        "start": start,
        "end": end,
    }


def lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The table: success at the end by environment, over the seeds that all policies have, and paired differences."""
    by_policy: dict[str, dict[int, dict[str, Any]]] = {}
    for row in rows:
        if row["steps"] == STEPS and row["seed"] in SEEDS:
            by_policy.setdefault(row["policy"], {})[row["seed"]] = row
    seeds = sorted(set.intersection(*(set(by_policy.get(name, ())) for name in POLICIES)))
    if not seeds:
        yield "No seed of the table has runs of all policies yet."
        return
    ends = {name: np.array([[by_policy[name][s]["end"][x] for x in LEARNABLE] for s in seeds]) for name in POLICIES}
    means = {name: np.array([np.mean(by_policy[name][s]["curve"]) for s in seeds]) for name in POLICIES}
    best = max(STATIC, key=lambda name: float(ends[name].mean()))
    yield f"{len(seeds)} seeds, {STEPS} steps of {ROLLOUTS} rollouts; the best static mixture is `{best}`."
    yield ""
    measures = "mean at the end | minus the best static's | mean over the run | minus"
    yield f"| mixture | {' | '.join(LEARNABLE)} | {measures} |"
    yield "|---" * (len(LEARNABLE) + 5) + "|"
    for name in POLICIES:
        cells = [f"{x:.3f}" for x in ends[name].mean(axis=0)]
        cells += [f"{ends[name].mean():.3f}", with_interval((ends[name] - ends[best]).mean(axis=1))]
        cells += [f"{means[name].mean():.3f}", with_interval(means[name] - means[best])]
        yield f"| `{name}` | {' | '.join(cells)} |"
    yield ""
    lowest = {x: float((ends["learn"] - ends["even"]).mean(axis=0)[k]) for k, x in enumerate(LEARNABLE)}
    yield "`learn` less `even` by environment: " + ", ".join(f"{x} {value:+.3f}" for x, value in lowest.items()) + "."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", action="append", choices=POLICIES, help="default: all")
    parser.add_argument("--seed", action="append", type=int, help="default: 3 to 12")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="print the table, and end")
    args = parser.parse_args()
    rows = read(args.out)
    if args.table:
        print("\n".join(lines(rows)))
        return
    done = {(row["policy"], row["seed"], row["steps"]) for row in rows}
    for seed, policy in itertools.product(args.seed or SEEDS, args.policy or POLICIES):
        if (policy, seed, args.steps) in done:
            continue
        row = run(policy, seed, args.steps)
        with args.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"seed {seed} {policy}: {row['start']} to {row['end']}, mean {np.mean(row['curve']):.3f}", flush=True)


if __name__ == "__main__":
    main()

"""Task mixes: prompts to train on and prompts to measure success on. Each mix has another difficulty."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import chain  # in this folder
import gradings
import growing
import operations
import reasoning
import reward_model
from language import Grading, Language, Rows

from budgetalloc.cli.testbed import skills
from budgetalloc.cli.testbed.skills import SKILLS, held_out, pool


@dataclass(frozen=True)
class Mix:
    """Prompts to train on (`rows(seed)`) and to measure on (`held_out()`), and what the mix is about."""

    rows: Callable[[int], Rows]
    held_out: Callable[[], Rows]
    about: str
    language: Language = skills
    grading: Grading | None = None
    """The reward in training; None is the language's own."""
    rates: tuple[float, ...] = (2e-4, 3e-4, 4.5e-4)
    """Learning rates that every policy is tuned over."""
    weights: Path | None = None
    """The folder of the model; None is the language's own."""
    rollouts: int = 256
    """Rollouts of a step."""

    def task(self, seed: int) -> dict[str, Any]:
        """The arguments of `train` that are the mix's."""
        task = {"rows": self.rows(seed), "held_out_rows": self.held_out(), "language": self.language}
        if self.weights is not None:
            task["weights"] = self.weights
        if self.grading is not None:
            task |= {"reward_funcs": self.grading.functions(seed), "reward_weights": list(self.grading.weights)}
        return task


def _of(rows: Rows, letters: str) -> Rows:
    return [row for row in rows if row["skill"] in letters]


def _paid(about: str, grading: Grading) -> Mix:
    """The prompts of `many_wrong` with this reward in training."""
    return Mix(lambda seed: operations.pool(80, seed), lambda: operations.held_out(20), about, operations, grading)


_RARE = "".join(skill.letter for skill in SKILLS if skill.shown <= 0.25 and not skill.is_trap)
_EASY = "".join(skill.letter for skill in SKILLS if skill.shown >= 0.95)
_TAIL = _RARE + _EASY[:4]
_HARD = "".join(skill.letter for skill in operations.SKILLS if skill.shown <= 0.25)
_RAREST = "".join(skill.letter for skill in operations.SKILLS if skill.shown <= 0.02)
_KNOWN = "".join(skill.letter for skill in operations.SKILLS if skill.shown > 0.25)

MIXES: dict[str, Mix] = {
    "u_shape": Mix(
        rows=lambda seed: pool(80, seed),
        held_out=lambda: held_out(20),
        about="the demo's: 24 skills from nearly mastered to nearly unknown, and two coins; 2,080 prompts",
    ),
    "hard_tail": Mix(
        rows=lambda seed: _of(pool(150, seed), _TAIL),
        held_out=lambda: _of(held_out(40), _TAIL),
        about="skills that pass at most one time in four, most of them one in twenty, and four easy ones",
    ),
    "seen_once": Mix(
        rows=lambda seed: pool(185, seed),
        held_out=lambda: held_out(20),
        about="the u-shape with 4,810 prompts: 150 steps of uniform see each once, so that history is nearly useless",
    ),
    "growing": Mix(
        rows=lambda seed: growing.pool(52, seed),
        held_out=lambda: growing.held_out(14),
        about="real arithmetic and string tasks of growing length, and two that can be guessed but not learned",
        language=growing,
        rates=(1e-4, 2e-4),
    ),
    "many_wrong": Mix(
        rows=lambda seed: operations.pool(80, seed),
        held_out=lambda: operations.held_out(20),
        about="24 skills from nearly mastered to nearly unknown, each with one right operation and eleven wrong ones",
        language=operations,
    ),
    "hard_wrong": Mix(
        rows=lambda seed: _of(operations.pool(160, seed), _HARD),
        held_out=lambda: _of(operations.held_out(40), _HARD),
        about="the 12 skills of them that pass at most one time in four; groups of one meet each prompt twenty times",
        language=operations,
    ),
    "hard_once": Mix(
        rows=lambda seed: _of(operations.pool(2_700, seed), _HARD),
        held_out=lambda: _of(operations.held_out(40), _HARD),
        about="the same 12 skills with 32,400 prompts, which even groups of one meet about once in 150 steps",
        language=operations,
    ),
    "easy_once": Mix(
        rows=lambda seed: _of(operations.pool(2_700, seed), _KNOWN),
        held_out=lambda: _of(operations.held_out(40), _KNOWN),
        about="the 12 other skills, which pass at least one time in three, also met about once",
        language=operations,
    ),
    "partial": _paid(
        "the prompts of many_wrong; the reward is the share of right characters", gradings.partial(operations)
    ),
    "composite": _paid(
        "the same; 0.8 for the right answer and 0.2 for its format, as two reward functions",
        gradings.composite(operations),
    ),
    "erring": _paid("the same; a verifier that errs in 5 % of the cases", gradings.erring(operations)),
    "edit_distance": _paid(
        "the same; the reward is minus the edit distance to the right answer", gradings.edit_distance(operations)
    ),
    "noisy_score": _paid(
        "the same; a judge's score from 1 to 10 with noise of 2 points", gradings.noisy_score(operations)
    ),
    "reward_model": _paid("the same; the score of a learned reward model of 2,369 parameters", reward_model.grading()),
    "scheduled": _paid(
        "the same; a verifier that becomes stricter, and a bonus for the format that fades",
        gradings.scheduled(operations),
    ),
    "hopeless": Mix(
        rows=lambda seed: _of(operations.pool(2_700, seed), _RAREST),
        held_out=lambda: _of(operations.held_out(40), _KNOWN),
        about="10,800 prompts that pass one time in 500, met about once; success is that of other, easier skills",
        language=operations,
        grading=gradings.mislabelled(operations),
    ),
    "chain": Mix(
        rows=lambda seed: chain.pool(300, seed),
        held_out=lambda: chain.held_out(30),
        about="chains of two to eight written steps, 10 to 40 characters, right only if every step is",
        language=chain,
    ),
    "reasoning": Mix(
        rows=lambda seed: reasoning.pool(110, seed),
        held_out=lambda: reasoning.held_out(20),
        about="ten tasks of reasoning-gym at one to three levels, with its verifiers, which give partial credit",
        language=reasoning,
        grading=Grading(lambda seed: [reasoning.verified]),
    ),
}

_ALIKE = "".join(skill.letter for skill in operations.SKILLS if 0.18 <= skill.shown <= 0.54)


def _small(name: str, size: int, alike: int, often: str = "") -> dict[str, Mix]:
    """Three pools with so many prompts of each skill: of many_wrong, of u_shape, and of skills with near rates."""
    return {
        name: Mix(
            rows=lambda seed: operations.pool(size, seed),
            held_out=lambda: operations.held_out(20),
            about=f"many_wrong with {24 * size} prompts{often}",
            language=operations,
        ),
        f"{name}_u": Mix(
            rows=lambda seed: pool(size, seed),
            held_out=lambda: held_out(20),
            about=f"u_shape with {26 * size} prompts{often}",
        ),
        f"{name}_alike": Mix(
            rows=lambda seed: _of(operations.pool(alike, seed), _ALIKE),
            held_out=lambda: _of(operations.held_out(40), _ALIKE),
            about=f"{5 * alike} prompts of the five skills that pass between one time in five and one in two",
            language=operations,
        ),
    }


SHAPES: dict[str, Mix] = {
    **_small("few", 4, 20, ", each met several times a step"),
    **_small("some", 6, 29, ": just more than half as many as a step has rollouts"),
    "hundreds": Mix(
        rows=lambda seed: operations.pool(11, seed),
        held_out=lambda: operations.held_out(20),
        about="many_wrong with 264 prompts, each met about once a step",
        language=operations,
    ),
    "wide_step": Mix(
        rows=lambda seed: operations.pool(50, seed),
        held_out=lambda: operations.held_out(20),
        about="many_wrong with 1,200 prompts and 1,024 rollouts a step",
        language=operations,
        rollouts=1024,
    ),
    "alike": Mix(
        rows=lambda seed: _of(operations.pool(400, seed), _ALIKE),
        held_out=lambda: _of(operations.held_out(40), _ALIKE),
        about="2,000 prompts of the five skills that pass between one time in five and one in two",
        language=operations,
    ),
    "alike_once": Mix(
        rows=lambda seed: _of(operations.pool(2_700, seed), _ALIKE),
        held_out=lambda: _of(operations.held_out(40), _ALIKE),
        about="13,500 prompts of these five skills",
        language=operations,
    ),
}
"""Pools that are small, seen at every step, or of prompts that resemble each other. Seen once and u-shaped ones are in
`MIXES`."""

MODELS = Path(__file__).parents[2] / "runs" / "series"
SIZED = SHAPES | {
    f"u_shape_{size}": replace(
        MIXES["u_shape"],
        about=f"u_shape, learned by a model of {size} parameters that `pretrain.py --size {size}` has made",
        weights=MODELS / size,
        rates=(1e-4, 2e-4, 3e-4),
    )
    for size in ("1M", "3M", "10M")
}
"""Does the gain depend on the size of the model? `u_shape` itself is learned by one of 340,000 parameters."""


def describe() -> str:
    """A line for each mix."""
    lines = []
    for name, mix in MIXES.items():
        try:
            rows = mix.rows(0)
        except ImportError as error:
            lines.append(f"{name:<10} cannot be run here: {error}")
            continue
        traps = sum(mix.language.is_trap(row["prompt_id"]) for row in rows)
        lines.append(f"{name:<10} {len(rows):>6,} prompts, {traps:,} of them traps: {mix.about}")
    return "\n".join(lines)

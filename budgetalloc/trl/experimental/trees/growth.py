"""Grows the trees of rollouts of some prompts, token block by token block, with any engine that
generates."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

__all__ = ["WAVE", "Active", "Engine", "Leaf", "grow"]

WAVE = 2**32
"""The numbers of the branches of wave w begin at w times this."""


class Active(NamedTuple):
    """What an engine generated for one row: at most the requested tokens, fewer only if the row has
    ended."""

    tokens: list[int]
    logps: list[float | None]  # log-probabilities of the tokens, or nothing
    entropy: float  # mean over the tokens, in nats; NaN if not asked for


class Engine(Protocol):
    """Generates several rows at once, and can go on from any of them."""

    def start(self, prompts: list[list[int]]) -> None:
        """Begins a row for each prompt."""

    def extend(self, tokens: int) -> list[Active]:
        """Samples the next tokens of every row."""

    def select(self, rows: list[int]) -> None:
        """Goes on with these rows; one that is named twice becomes two, which share what was
        computed."""


@dataclass
class Leaf:
    """A rollout while it grows. A branch starts as a copy of its parent.

    `branch_T` has the number of the branch that each token belongs to. `weight` is that of the
    root, halved at each branching point.
    """

    prompt: int
    branch: int
    weight: float
    tokens: list[int] = field(default_factory=list)
    logps: list[float | None] = field(default_factory=list)
    branch_T: list[int] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)  # of each block
    in_a_row: int = 0  # branching points since the last block without one

    def add(self, made: Active) -> None:
        self.tokens += made.tokens
        self.logps += made.logps
        self.branch_T += [self.branch] * len(made.tokens)
        self.entropies.append(made.entropy)

    def child(self, branch: int) -> "Leaf":
        """One of the two branches that this one becomes."""
        copied = list(self.tokens), list(self.logps), list(self.branch_T), list(self.entropies)
        return Leaf(self.prompt, branch, self.weight / 2, *copied, self.in_a_row + 1)


def grow(
    engine: Engine,
    prompts_P: Sequence[list[int]],
    counts_P: Sequence[int],
    roots_P: Sequence[int],
    points: Sequence[int],
    longest: int,
    ends: Callable[[list[int]], bool],
    choose: Callable[[Sequence[Leaf], int], Sequence[int]],
    waves: Iterator[int],
) -> tuple[list[list[Leaf]], int]:
    """The rollouts of each prompt, and the number of tokens generated for all.

    A choice depends only on tokens before it. If a prompt's trees end with too few leaves, a
    further wave of trees is grown. All roots of a prompt have the same weight: by Wald's identity,
    the expected sum over the roots is then their expected number times the expectation for one.

    Args:
        engine: Generates.
        prompts_P: The tokens of each prompt.
        counts_P: Rollouts of each prompt, at least 1.
        roots_P: How many of them begin at the prompt, from 1 to the count.
        points: The lengths at which rollouts may branch, increasing.
        longest: Most tokens of a rollout.
        ends: Whether these tokens end a rollout.
        choose: From the open rollouts of a prompt and how many more it may have, the positions of
            those that branch.
        waves: Numbers the waves.
    """
    left_P, tokens = list(counts_P), 0
    leaves_P: list[list[Leaf]] = [[] for _ in counts_P]
    while any(left_P):
        names = itertools.count(next(waves) * WAVE)
        open_rows: list[Leaf] = []
        for at, left in enumerate(left_P):
            begun = min(left, max(1, round(left * roots_P[at] / counts_P[at])))
            open_rows += [Leaf(at, next(names), counts_P[at] / roots_P[at]) for _ in range(begun)]
            left_P[at] -= begun
        engine.start([prompts_P[leaf.prompt] for leaf in open_rows])
        length = 0
        while open_rows:
            may_branch = any(left_P[leaf.prompt] for leaf in open_rows)
            stop = next((x for x in points if x > length), longest) if may_branch else longest
            stop = min(stop, longest)
            for leaf, made in zip(open_rows, engine.extend(stop - length), strict=True):
                leaf.add(made)
                tokens += len(made.tokens)
            length = stop
            going: dict[int, list[int]] = {}
            for row, leaf in enumerate(open_rows):
                if len(leaf.tokens) < length or length == longest or ends(leaf.tokens):
                    leaves_P[leaf.prompt].append(leaf)
                else:
                    going.setdefault(leaf.prompt, []).append(row)
            rows: list[int] = []
            next_rows: list[Leaf] = []
            for prompt, here in going.items():
                chosen = (
                    choose([open_rows[row] for row in here], left_P[prompt])
                    if left_P[prompt]
                    else ()
                )
                left_P[prompt] -= len(chosen)
                for at, row in enumerate(here):
                    if at in chosen:
                        rows += [row, row]
                        next_rows += [open_rows[row].child(next(names)) for _ in range(2)]
                    else:
                        open_rows[row].in_a_row = 0
                        rows.append(row)
                        next_rows.append(open_rows[row])
            open_rows = next_rows
            if open_rows:
                engine.select(rows)
    return leaves_P, tokens

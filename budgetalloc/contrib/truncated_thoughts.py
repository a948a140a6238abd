"""Thoughts that are truncated at several budgets, with an answer after each: a `rollout_func` for
TRL's `GRPOTrainer`."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from budgetalloc.contrib.generation import extended
from budgetalloc.contrib.thought_and_answer import ThoughtAndAnswer
from budgetalloc.contrib.tree_growth import WAVE, Leaf
from budgetalloc.contrib.trees import Trees, increasing_lengths
from budgetalloc.errors import InputError, check_number


class TruncatedThoughts(Trees):
    """Thoughts that are rewarded at several budgets, as the `rollout_func` of TRL's `GRPOTrainer`.

    Add an `AdaptiveGRPOCallback` too, with any policy. A prompt's rollouts are answers to its
    `roots` thoughts, evenly. Each thought is generated once. It is truncated at the budget of each
    of its answers, ended by force there unless it has ended, and answered from there
    (AnytimeReasoner, arXiv 2505.13438). So the reward of a thought is the mean of its answers'
    rewards, in which budget j has the share P_j, and a token is credited with the answers after it
    only: the part of a thought beyond budget j with sum_{i > j} P_i r_i. What the model did not
    write is masked from the loss.

    An answer's row has the thought so far. As in `Trees`, shared tokens count once, and advantages
    are those of `tree_growth.branch_advantages`: the baseline of a part of a thought is the mean of
    the other thoughts of the prompt and of the answers to what precedes it, as BRPO combines both,
    and that of an answer adds the other ways in which its truncated thought went on.
    Budgets are drawn by systematic sampling, so expected gradients are those of the expected reward
    for any number of answers; with a multiple of the number of budgets, uniform shares are exact.

    Args:
        budgets: The lengths in tokens at which thoughts are truncated, increasing.
        answer: Most tokens of an answer, with the end of the text.
        end: The text that ends a thought.
        shares: The share of each budget, in any unit; the same by default. In proportion to
            `budgets` they are AnytimeReasoner's linear prior.
        roots: Thoughts of a prompt as a share of its rollouts, or a schedule, as in `Trees`.
        seed: Of the draws of budgets.

    Raises:
        InputError: a bad argument.

    >>> thoughts = TruncatedThoughts([256, 512, 1024, 2048], 128, roots=0.25)
    >>> thoughts.roots_of(16, step=0)  # thoughts, with four answers each
    4
    """

    def __init__(
        self,
        budgets: Sequence[int],
        answer: int,
        *,
        end: str = "</think>",
        shares: Sequence[float] | None = None,
        roots: float | Mapping[int, float] = 0.25,
        seed: int = 0,
    ) -> None:
        budgets = increasing_lengths("budgets", budgets)
        super().__init__(budgets, roots=roots, seed=seed)
        self.phases = ThoughtAndAnswer(budgets[-1], answer, end=end)
        shares = [1.0] * len(budgets) if shares is None else list(shares)
        for each in shares:
            check_number("shares", each, 0, math.inf, without=(math.inf,))
        if len(shares) != len(budgets) or not sum(shares):
            raise InputError("shares", "give each budget a share, not all of them 0.", shares)
        self.shares = np.array(shares) / sum(shares)

    def grown(
        self, trainer: Any, prompts_P: list[list[int]], counts_P: list[int], roots_P: list[int]
    ) -> tuple[list[list[Leaf]], int]:
        """So many answers for each prompt, to so many thoughts, and the number of tokens that the
        model wrote. In evaluations all answers have the largest budget."""
        rng = np.random.default_rng([self.seed, trainer.state.global_step])
        points = np.minimum(self.points, self.phases.longest_thought(trainer))
        prompt_T: list[int] = []  # of each thought, and the budgets of its answers
        budgets_T: list[list[int]] = []
        for prompt, (count, roots) in enumerate(zip(counts_P, roots_P, strict=True)):
            for answers in (count + np.arange(roots)) // roots:
                quantiles = (np.arange(answers) + rng.random()) / answers
                drawn = np.searchsorted(np.cumsum(self.shares)[:-1], quantiles, side="right")
                prompt_T.append(prompt)
                budgets_T.append(points[drawn if trainer.model.training else [-1]].tolist())
        begun_T = [prompts_P[prompt] for prompt in prompt_T]
        made_T = extended(trainer, begun_T, np.array([each[-1] for each in budgets_T]))
        names = itertools.count(next(self._waves) * WAVE)
        leaves_P: list[list[Leaf]] = [[] for _ in counts_P]
        tokens = 0
        for prompt, budgets, (made, logps) in zip(prompt_T, budgets_T, made_T, strict=True):
            until = self.phases.thought_length(trainer._tokenizer, made) or len(made)
            branches = [next(names) for _ in points]
            parts = np.searchsorted(points, np.arange(until), side="right")
            branch_T = [branches[part] for part in parts.tolist()]
            weight = counts_P[prompt] / roots_P[prompt] / len(budgets)
            tokens += until
            for at, budget in enumerate(budgets, start=1):
                length = min(budget, until)
                # the last one keeps what the model already wrote of its answer
                stop = len(made) if at == len(budgets) else length
                leaves_P[prompt].append(
                    Leaf(prompt, next(names), weight, made[:stop], logps[:stop], branch_T[:length])
                )
        leaves = list(itertools.chain(*leaves_P))
        own_R = self.phases.answer_to(
            trainer,
            [prompts_P[leaf.prompt] for leaf in leaves],
            [(leaf.tokens, leaf.logps) for leaf in leaves],
        )
        for leaf, own in zip(leaves, own_R, strict=True):
            tokens += sum(own[len(leaf.branch_T) :])
            leaf.own_T = own
            leaf.branch_T += [leaf.branch] * (len(own) - len(leaf.branch_T))
        return leaves_P, tokens

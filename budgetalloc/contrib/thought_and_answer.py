"""Rollouts of a thought and an answer with a budget each: a `rollout_func` for TRL's
`GRPOTrainer`."""

import bisect
from collections.abc import Sequence
from typing import Any

import numpy as np

from budgetalloc.contrib.generation import ends, extended, tokens_of
from budgetalloc.errors import InputError, check_integer, check_type, refuse


class ThoughtAndAnswer:
    """Gives thought and answer a budget each, as the `rollout_func` of TRL's `GRPOTrainer`.

    A thought that has not ended after `thought` tokens is ended by force: `end` is appended, and
    masked from the loss. Then the answer has its own `answer` tokens, whether the thought ended by
    itself or by force (Elastic Reasoning, arXiv 2505.05315; 1,024 tokens each in its training).
    What the model wrote is trained on, with the trainer's advantages. Works with or without an
    `AdaptiveGRPOCallback`, and in evaluations.

    `max_completion_length` must hold all of it. If a `LengthSchedule` lowers it, thoughts get
    shorter, and answers keep their budget. The metric `budgetalloc/thoughts/forced` is the share of
    thoughts that were ended by force.

    Args:
        thought: Most tokens of a thought, with its end.
        answer: Most tokens of an answer, with the end of the text.
        end: The text that ends a thought.

    Raises:
        InputError: a bad argument. UnsupportedError: several processes, tools or images.

    >>> ThoughtAndAnswer(1024, 1024, end="</think>").answer
    1024
    """

    def __init__(self, thought: int, answer: int, *, end: str = "</think>") -> None:
        self.thought = check_integer("thought", thought, 1)
        self.answer = check_integer("answer", answer, 1)
        check_type("end", end, str, "the text that ends a thought")
        if not end:
            raise InputError("end", "is empty: give the text that ends a thought.")
        self.end = end

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """The rollouts, as TRL asks for them."""
        refused = {
            "several processes": trainer.accelerator.num_processes > 1,
            "tools and environments": (
                getattr(trainer, "tools", None) or getattr(trainer, "environment_factories", None)
            ),
        }
        refuse(refused, "rollout_func=ThoughtAndAnswer(...) works without ", ".")
        prompts_R, most = tokens_of(trainer, prompts), self.longest_thought(trainer)
        made_R = extended(trainer, prompts_R, np.full(len(prompts), most))
        own_R = self.answer_to(trainer, prompts_R, made_R)
        return {
            "prompt_ids": prompts_R,
            "completion_ids": [tokens for tokens, _ in made_R],
            "logprobs": [logps for _, logps in made_R] if trainer.use_vllm else None,
            "env_mask": own_R,
        }

    def longest_thought(self, trainer: Any) -> int:
        """Most tokens of a thought that leaves room for its forced end and the answer."""
        more = len(_tokens(trainer, self.end)) + self.answer
        most: int = min(self.thought, trainer.max_completion_length - more)
        if most < 1:
            raise InputError(
                "max_completion_length",
                f"holds no thought before an answer of {self.answer} tokens: set at least "
                f"{self.thought + more}.",
                trainer.max_completion_length,
            )
        return most

    def answer_to(
        self,
        trainer: Any,
        prompts_R: Sequence[list[int]],
        made_R: Sequence[tuple[list[int], list[Any]]],
    ) -> list[list[int]]:
        """Ends open thoughts by force, and adds answers.

        Args:
            trainer: The trainer.
            prompts_R: The tokens of each row's prompt.
            made_R: Tokens and log-probabilities of its thought, maybe with a part of its answer.
                They are extended in place.

        Returns:
            For each token of a row, whether the model wrote it.
        """
        tokenizer, of_end, forced = trainer._tokenizer, ends(trainer), _tokens(trainer, self.end)
        own_R = [[1] * len(tokens) for tokens, _ in made_R]
        left_R = np.zeros(len(made_R), dtype=np.int64)  # the tokens that the answer may still have
        ended_by_force = 0
        for row, (tokens, logps) in enumerate(made_R):
            until = self.thought_length(tokenizer, tokens)
            complete = tokens[-1] in of_end
            if until is None and not complete:
                ended_by_force += 1
                tokens += forced
                logps += [0.0] * len(forced if logps else [])
                own_R[row] += [0] * len(forced)
                until = len(tokens)
            if until is not None:
                most = until + self.answer
                for column in (tokens, logps, own_R[row]):
                    del column[most:]
                left_R[row] = 0 if complete else most - len(tokens)
        open_rows = np.flatnonzero(left_R).tolist()
        if open_rows:
            begun = [prompts_R[row] + made_R[row][0] for row in open_rows]
            answers = extended(trainer, begun, left_R[open_rows])
            for row, (tokens, logps) in zip(open_rows, answers, strict=True):
                made_R[row][0].extend(tokens)
                made_R[row][1].extend(logps)
                own_R[row] += [1] * len(tokens)
        if trainer.model.training:
            share = ended_by_force / len(made_R)
            trainer._metrics["train"]["budgetalloc/thoughts/forced"].append(share)
        return own_R

    def thought_length(self, tokenizer: Any, tokens: Sequence[int]) -> int | None:
        """The tokens until the end of the thought, which may lie within a token; None if it has not
        ended."""

        def ends_within(length: int) -> bool:
            text = tokenizer.decode(tokens[:length], clean_up_tokenization_spaces=False)
            return self.end in text

        if not ends_within(len(tokens)):
            return None
        return bisect.bisect_left(range(len(tokens)), True, key=ends_within)


def _tokens(trainer: Any, text: str) -> list[int]:
    found: list[int] = trainer._tokenizer(text, add_special_tokens=False)["input_ids"]
    return found

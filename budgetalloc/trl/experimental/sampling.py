"""Completions of chosen prompts by a vLLM server, and their rewards."""

import asyncio
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.errors import InputError
from budgetalloc.training.prompts import Prompts, turns
from budgetalloc.trl.experimental.completions import Server
from budgetalloc.trl.generation import GROUP

__all__ = ["CompletionSampler", "SampledCompletion", "as_messages", "names_of", "shuffled_passes"]

_GIVEN = ("prompt", "completion", "completion_ids")  # columns that reward functions get in another way


@dataclass(frozen=True, eq=False)
class SampledCompletion:
    """One completion of a row of the dataset.

    Args:
        prompt: The prompt's id.
        row: The row of the dataset.
        prompt_ids: The prompt's tokens.
        ids: The completion's tokens.
        log_probs: The log-probability of each of `ids` under the model that wrote it.
        completion: The text or messages that reward functions see.
    """

    prompt: Id
    row: dict[str, Any]
    prompt_ids: list[int]
    ids: list[int]
    log_probs: list[float]
    completion: Any


class CompletionSampler:
    """Samples completions and scores them, in one thread.

    Args:
        trainer: The trainer, with the tokenizer and the `AsyncGRPOConfig`.
        prompts: The pool.
        reward_funcs: Score the completions.
        server: Completes the prompts.
        on_progress: Called on any progress; its argument, if any, names the activity that begins.
    """

    def __init__(
        self,
        trainer: Any,
        prompts: Prompts,
        reward_funcs: Sequence[Callable[..., Any]],
        server: Server,
        on_progress: Callable[..., None],
    ) -> None:
        self.tokenizer, self.template = trainer.processing_class, trainer.args.chat_template_kwargs or {}
        self.prompts, self.reward_funcs, self.server, self.on_progress = prompts, reward_funcs, server, on_progress
        self.names = names_of(reward_funcs)
        self._loop = asyncio.new_event_loop()  # one for all calls, because a reward function may keep it

    def close(self) -> None:
        """Closes the event loop of asynchronous reward functions."""
        self._loop.close()

    def sample(self, ids_R: list[Id], key: list[int]) -> list[SampledCompletion]:
        """A completion for each of these prompts; `key` seeds them."""
        self.on_progress(f"generating {len(ids_R)} rollouts")
        rows_R = self.prompts.rows_in_turn(list(zip(ids_R, turns(ids_R, key), strict=True)))
        tokens = {prompt: self._tokens(row["prompt"]) for prompt, row in dict(zip(ids_R, rows_R, strict=True)).items()}
        # Without a seed each, vLLM's engines would draw the same completions.
        seeds_R = np.random.default_rng(key).integers(2**63, size=len(ids_R)).tolist()
        sampled = []
        answers = self.server.complete([tokens[prompt] for prompt in ids_R], seeds_R, self.on_progress)
        for prompt, row, (ids, log_probs) in zip(ids_R, rows_R, answers, strict=True):
            text = self.tokenizer.decode(ids, skip_special_tokens=True)
            completion = text if isinstance(row["prompt"], str) else as_messages("assistant", text)
            sampled.append(SampledCompletion(prompt, row, tokens[prompt], ids, log_probs, completion))
        return sampled

    def _tokens(self, prompt: Any) -> list[int]:
        if isinstance(prompt, str):
            return list(self.tokenizer(prompt)["input_ids"])
        render = self.tokenizer.apply_chat_template
        return list(render(prompt, return_dict=False, add_generation_prompt=True, **self.template))

    def score(self, sampled: list[SampledCompletion]) -> FloatArray:
        """The reward of each rollout by each reward function, shape (R, F), NaN for None."""
        given: dict[str, list[Any]] = {
            "prompts": [each.row["prompt"] for each in sampled],
            "completions": [each.completion for each in sampled],
            "completion_ids": [each.ids for each in sampled],
            GROUP: [each.prompt for each in sampled],
        } | {key: [each.row[key] for each in sampled] for key in sampled[0].row if key not in _GIVEN}
        answers = []
        for func, name in zip(self.reward_funcs, self.names, strict=True):
            self.on_progress(f"scoring {len(sampled)} rollouts with {name}")
            answers.append(func(**given))
        answers = self._loop.run_until_complete(_settled(answers))
        self.on_progress()
        for name, answer in zip(self.names, answers, strict=True):
            if len(answer) != len(sampled):
                raise InputError(
                    f"{name} returned {len(answer)} rewards for {len(sampled)} completions: return one for each."
                )
        return np.array([[math.nan if x is None else float(x) for x in answer] for answer in answers]).T


async def _settled(answers: list[Any]) -> list[Any]:
    """The results, with all awaitables awaited together."""
    waiting = {at: answer for at, answer in enumerate(answers) if inspect.isawaitable(answer)}
    results = dict(zip(waiting, await asyncio.gather(*waiting.values()), strict=True))
    return [results.get(at, answer) for at, answer in enumerate(answers)]


def as_messages(role: str, content: Any) -> list[dict[str, Any]]:
    """A text as a conversation of one message; a conversation stays unchanged."""
    return [{"role": role, "content": content}] if isinstance(content, str) else list(content)


def names_of(reward_funcs: Sequence[Callable[..., Any]]) -> list[str]:
    """The names of the reward functions, as in the metrics."""
    return [getattr(func, "__name__", type(func).__name__) for func in reward_funcs]


def shuffled_passes(ids_P: Sequence[Id], start: int, width: int, seed: int) -> list[Id]:
    """The distinct prompts at `width` positions from `start` on, in an order that is reshuffled at each pass.

    >>> shuffled_passes(["a", "b", "c"], 0, 3, seed=0), shuffled_passes(["a", "b", "c"], 2, 2, seed=0)
    (['c', 'a', 'b'], ['b', 'c'])
    """
    places = [divmod(start + k, len(ids_P)) for k in range(width)]
    orders = {lap: np.random.default_rng([seed, lap]).permutation(len(ids_P)) for lap, _ in places}
    return list(dict.fromkeys(ids_P[orders[lap][at]] for lap, at in places))

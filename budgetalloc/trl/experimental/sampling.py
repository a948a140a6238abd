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
from budgetalloc.trl.experimental.completions import Completion
from budgetalloc.trl.generation import GROUP

__all__ = [
    "CompletionSampler",
    "Request",
    "SampledCompletion",
    "as_messages",
    "names_of",
    "shuffled_passes",
]

# columns that reward functions get in another way
_GIVEN = ("prompt", "completion", "completion_ids")


@dataclass(frozen=True, eq=False)
class Request:
    """What one rollout asks of the server.

    Args:
        prompt: The prompt's id.
        row: The row of the dataset.
        prompt_ids: The prompt's tokens.
        seed: Seeds the completion.
    """

    prompt: Id
    row: dict[str, Any]
    prompt_ids: list[int]
    seed: int


@dataclass(frozen=True, eq=False)
class SampledCompletion:
    """One completion.

    Args:
        request: What was asked.
        ids: The completion's tokens.
        log_probs: The log-probability of each of `ids` under the model that wrote it.
        completion: The text or messages that reward functions see.
    """

    request: Request
    ids: list[int]
    log_probs: list[float]
    completion: Any


class CompletionSampler:
    """Makes requests of prompts, and scores their completions, in one thread.

    Args:
        trainer: The trainer, with the tokenizer and the `AsyncGRPOConfig`.
        prompts: The pool.
        reward_funcs: Score the completions.
        on_progress: Called on any progress; its argument, if any, names the activity that begins.
    """

    def __init__(
        self,
        trainer: Any,
        prompts: Prompts,
        reward_funcs: Sequence[Callable[..., Any]],
        on_progress: Callable[..., None],
    ) -> None:
        self.tokenizer, self.template = (
            trainer.processing_class,
            trainer.args.chat_template_kwargs or {},
        )
        self.prompts, self.reward_funcs, self.on_progress = prompts, reward_funcs, on_progress
        self.names = names_of(reward_funcs)
        # one for all calls, because a reward function may keep it
        self._loop = asyncio.new_event_loop()

    def close(self) -> None:
        """Closes the event loop of asynchronous reward functions."""
        self._loop.close()

    def requests(self, ids_R: list[Id], key: list[int]) -> list[Request]:
        """A request for each of these prompts; `key` seeds them."""
        self.on_progress(f"generating {len(ids_R)} rollouts")
        rows_R = self.prompts.rows_in_turn(list(zip(ids_R, turns(ids_R, key), strict=True)))
        tokens = {
            prompt: self._tokens(row["prompt"])
            for prompt, row in dict(zip(ids_R, rows_R, strict=True)).items()
        }
        # Without a seed each, vLLM's engines would draw the same completions.
        seeds_R = np.random.default_rng(key).integers(2**63, size=len(ids_R)).tolist()
        rows = zip(ids_R, rows_R, seeds_R, strict=True)
        return [Request(prompt, row, tokens[prompt], seed) for prompt, row, seed in rows]

    def sampled(self, request: Request, answer: Completion) -> SampledCompletion:
        """The server's answer, decoded."""
        text = self.tokenizer.decode(answer[0], skip_special_tokens=True)
        completion = (
            text if isinstance(request.row["prompt"], str) else as_messages("assistant", text)
        )
        return SampledCompletion(request, *answer, completion)

    def _tokens(self, prompt: Any) -> list[int]:
        if isinstance(prompt, str):
            return list(self.tokenizer(prompt)["input_ids"])
        render = self.tokenizer.apply_chat_template
        return list(render(prompt, return_dict=False, add_generation_prompt=True, **self.template))

    def score(self, sampled: list[SampledCompletion]) -> FloatArray:
        """The reward of each rollout by each reward function, shape (R, F), NaN for None."""
        if not sampled:
            return np.zeros((0, len(self.names)))
        rows = [each.request.row for each in sampled]
        given: dict[str, list[Any]] = {
            "prompts": [row["prompt"] for row in rows],
            "completions": [each.completion for each in sampled],
            "completion_ids": [each.ids for each in sampled],
            GROUP: [each.request.prompt for each in sampled],
        } | {key: [row[key] for row in rows] for key in rows[0] if key not in _GIVEN}
        answers = []
        for func, name in zip(self.reward_funcs, self.names, strict=True):
            self.on_progress(f"scoring {len(sampled)} rollouts with {name}")
            answers.append(func(**given))
        answers = self._loop.run_until_complete(_settled(answers))
        self.on_progress()
        for name, answer in zip(self.names, answers, strict=True):
            if len(answer) != len(sampled):
                raise InputError(
                    f"{name} returned {len(answer)} rewards for {len(sampled)} completions: return "
                    "one for each."
                )
        return np.array(
            [[math.nan if x is None else float(x) for x in answer] for answer in answers]
        ).T


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
    """The distinct prompts at `width` positions from `start` on, in an order that is reshuffled at
    each pass.

    >>> shuffled_passes(["a", "b", "c"], 0, 3, seed=0), shuffled_passes(["a", "b", "c"], 2, 2, seed=0)
    (['c', 'a', 'b'], ['b', 'c'])
    """
    places = [divmod(start + k, len(ids_P)) for k in range(width)]
    orders = {lap: np.random.default_rng([seed, lap]).permutation(len(ids_P)) for lap, _ in places}
    return list(dict.fromkeys(ids_P[orders[lap][at]] for lap, at in places))

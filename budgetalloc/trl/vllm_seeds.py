"""Seeds of vLLM's samples, where each row is a request of its own."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from budgetalloc.trl.patching import patched_attribute

_AT_ONCE = 16  # requests to the server
_BY_ROW = ("prompts", "features", "images")  # arguments of TRL's client with an entry for each row
Text = tuple[int, ...]  # the tokens of a row


@contextmanager
def seeds_by_row(trainer: Any, sent: Counter[Text]) -> Iterator[None]:
    """Inside the block, rollouts of one text have different seeds, as TRL's n samples of one
    request have: `generation_kwargs["seed"]` for the first, and one more for each further one.

    With that seed for every row, all rollouts of a prompt would be one text. Nothing changes
    without a seed, without vLLM, and for requests of several samples.

    Args:
        trainer: The trainer.
        sent: The rows of each text that were generated before; those of the block are added.
    """
    engine: Any = trainer.vllm_generation if trainer.use_vllm else None
    seed = None if engine is None else engine.generation_kwargs.get("seed")
    if seed is None or getattr(engine, "budgetalloc_seeds", False):  # also in a block in a block
        yield
        return
    if engine.mode == "server" and not trainer.accelerator.is_main_process:
        yield  # the main process sends the rows of all
        return
    if engine.mode == "server":
        owner, by_row = engine.vllm_client, _of_server(engine.vllm_client.generate, seed, sent)
    else:  # each process, or group of processes that share an engine, sends its own
        shared, accelerator = engine.tensor_parallel_size, trainer.accelerator
        engines = accelerator.num_processes // shared
        first = seed + accelerator.process_index // shared
        owner, by_row = engine.llm, _of_engine(engine.llm.generate, first, engines, sent)
    with (
        patched_attribute(engine, "budgetalloc_seeds", True),
        patched_attribute(owner, "generate", by_row),
    ):
        yield


def one_text_warning(trainer: Any) -> str | None:
    """The warning that TRL's own groups are copies of one completion, or None."""
    engine = trainer.vllm_generation if trainer.use_vllm else None
    if engine is None or engine.mode == "server" or engine.generation_kwargs.get("seed") is None:
        return None
    return (
        "With generation_kwargs={'seed': ...} and vLLM in the process, TRL generates all rollouts "
        "of a prompt with one seed: they are one text, and no group has a gradient. Remove the "
        "seed; GRPOConfig(seed=) makes runs repeatable."
    )


def _numbers(rows: list[list[int]], sent: Counter[Text]) -> list[int]:
    """How many rows of the same text there were before each row; counts them.

    >>> _numbers([[1], [2], [1]], sent := Counter({(2,): 5})), sent
    ([0, 5, 1], Counter({(2,): 6, (1,): 2}))
    """
    numbers = []
    for row in map(tuple, rows):
        numbers.append(sent[row])
        sent[row] += 1
    return numbers


def _of_engine(
    generate: Callable[..., Any], first: int, step: int, sent: Counter[Text]
) -> Callable[..., Any]:
    """The `generate` of vLLM in this process, with the seeds `first`, `first + step`, ... for the
    rows of a text."""

    def by_row(prompts: Any, sampling_params: Any, **named: Any) -> Any:
        each = sampling_params if isinstance(sampling_params, list) else [sampling_params]
        of_rows = [one.clone() for one in each * (len(prompts) // len(each))]
        numbers = _numbers([row["prompt_token_ids"] for row in prompts], sent)
        for one, number in zip(of_rows, numbers, strict=True):
            one.seed = first + step * number
        return generate(prompts, sampling_params=of_rows, **named)

    return by_row


def _of_server(generate: Callable[..., Any], seed: int, sent: Counter[Text]) -> Callable[..., Any]:
    """The `generate` of TRL's client of a server, with a request for each seed, because the rows of
    a request share theirs."""

    def by_row(*, n: int = 1, generation_kwargs: dict[str, Any] | None = None, **named: Any) -> Any:
        if n != 1:
            return generate(n=n, generation_kwargs=generation_kwargs, **named)
        numbers = _numbers(named["prompts"], sent)

        def send(number: int) -> tuple[list[int], dict[str, Any]]:
            rows = [at for at, each in enumerate(numbers) if each == number]
            of_rows = {
                name: [value[at] for at in rows]
                for name, value in named.items()
                if name in _BY_ROW and value is not None
            }
            seeded = {**(generation_kwargs or {}), "seed": seed + number}
            return rows, generate(n=n, generation_kwargs=seeded, **named | of_rows)

        wanted = sorted(set(numbers))
        with ThreadPoolExecutor(min(_AT_ONCE, len(wanted))) as at_once:
            answers = list(at_once.map(send, wanted))
        made: dict[str, Any] = {}
        for rows, answer in answers:
            for name, values in answer.items():
                if values is None:
                    made[name] = None
                    continue
                column = made.setdefault(name, [None] * len(numbers))
                for at, value in zip(rows, values, strict=True):
                    column[at] = value
        return made

    return by_row

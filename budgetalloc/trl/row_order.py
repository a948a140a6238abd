"""Recognises reward functions whose rewards depend on the order of the rows, by a second call."""

import copy
import functools
import inspect
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import some_unequal
from budgetalloc.trl.own_generation import closure, names_in, plain_function

# What code names or does that finds rows by their place.
_BY_PLACE = {
    *("range", "arange", "iter", "islice", "batched", "chunk", "chunks", "chunked", "grouper"),
    *("reshape", "view", "unflatten", "array_split", "as_strided", "unfold", "//", "%", "[:]"),
}
# What it names or does if a second call could draw anew, cost, wait for others or be seen.
_NOT_AGAIN = {
    *("random", "rand", "randn", "randint", "default_rng", "multinomial", "secrets", "uuid4"),
    *("shuffle", "sample", "choice", "choices", "sleep", "time", "requests", "httpx", "aiohttp"),
    *(
        "openai",
        "anthropic",
        "urlopen",
        "post",
        "client",
        "generate",
        "create",
        "invoke",
        "predict",
    ),
    *("subprocess", "Popen", "run", "system", "exec", "open", "write", "print", "wandb"),
    *("ThreadPoolExecutor", "ProcessPoolExecutor", "executor", "distributed", "accelerator"),
    *("gather", "gather_object", "all_gather", "all_reduce", "broadcast"),
    *("STORE_GLOBAL", "STORE_ATTR"),
}
_DEAR = 1.0  # seconds of a call, above which there is no second one


class RowOrder:
    """Calls a reward function again with the rows of a step in another order, once, and says
    whether it then gives them other rewards.

    This is done only if the code of the function finds rows by their place, as `range`, `reshape`,
    slices, `//` or `%` do, and if it is neither random, nor asynchronous, nor a model, nor slow,
    nor changes what it holds.

    >>> def rank(completions, **_):
    ...     blocks = np.reshape([len(text) for text in completions], (-1, 2))
    ...     return (blocks == blocks.max(axis=1, keepdims=True)).ravel().astype(float).tolist()
    >>> rows = {"completions": ["a", "bb", "ccc", "dddd"]}
    >>> RowOrder().matters("rank", rank, rows, rank(**rows), seconds=0)
    True
    """

    def __init__(self) -> None:
        self._known: set[str] = set()

    def watched(self, name: str, function: Any, found: Callable[[str], None]) -> Any:
        """The function, which calls `found` after a call that showed that the order matters."""
        if name in self._known:
            return function
        if not may_be_called_again(function):
            self._known.add(name)
            return function

        @functools.wraps(function)
        def watching(**columns: Any) -> Any:
            held = _sizes(function)
            began = time.perf_counter()
            rewards = function(**columns)
            seconds = time.perf_counter() - began
            if held != _sizes(function):
                self._known.add(name)
            elif self.matters(name, function, columns, rewards, seconds):
                found(name)
            return rewards

        return watching

    def matters(
        self, name: str, function: Any, columns: dict[str, Any], rewards: Any, seconds: float
    ) -> bool:
        """Whether these rewards of these rows depend on their order; False if that is not known."""
        given = _numbers(rewards)
        if seconds > _DEAR or not some_unequal(given):
            return False  # a later step may show it
        self._known.add(name)
        rows = len(given)
        order = np.random.default_rng(rows).permutation(rows)

        def again(places: Any) -> FloatArray:
            moved = {
                key: [copy.deepcopy(value[at]) for at in places]
                if isinstance(value, list) and len(value) == rows
                else _nothing
                if key in ("log_extra", "log_metric")
                else value
                for key, value in columns.items()
            }
            return _numbers(function(**moved))

        try:
            with draws_unchanged():
                return not _same(again(order), given[order]) and _same(again(range(rows)), given)
        except Exception:  # it works on no rows but these, and has been called with them
            return False


def may_be_called_again(function: Any) -> bool:
    """Whether the code of this function finds rows by place, and a second call does no harm."""
    own, cls = plain_function(function)
    if own is None or inspect.iscoroutinefunction(own):
        return False
    if isinstance(function, torch.nn.Module):
        return False
    names = names_in(own, cls)
    return bool(names & _BY_PLACE) and not names & _NOT_AGAIN


def _sizes(function: Any) -> list[int]:
    """The sizes of the collections around it that its code names; a record of calls grows."""
    own, _ = plain_function(function)
    around = (
        own.__globals__
        | closure(own)
        | getattr(getattr(function, "__self__", function), "__dict__", {})
    )
    kept = [around.get(name) for name in sorted(names_in(own, type(None)))]
    return [len(each) for each in kept if isinstance(each, list | dict | set | deque)]


@contextmanager
def draws_unchanged() -> Iterator[None]:
    """Inside the block, draws of the global generators do not count."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


def _numbers(rewards: Any) -> FloatArray:
    return np.array([np.nan if each is None else float(each) for each in rewards])


def _same(one: FloatArray, other: FloatArray) -> bool:
    return one.shape == other.shape and np.allclose(one, other, 1e-4, 1e-6, equal_nan=True)


def _nothing(*_: Any) -> None:
    """In place of TRL's `log_extra` and `log_metric`."""

"""Requests completions from a vLLM server, in the same form as TRL's own worker."""

import json
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from http.client import HTTPException
from typing import Any

from budgetalloc.errors import UnsupportedError

__all__ = ["ATTEMPTS", "Completion", "Server", "TrainingEnded"]

ATTEMPTS = 8  # of one request, over about a minute
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # without a proxy, as in TRL
_BROKEN = (urllib.error.URLError, HTTPException, ConnectionError, TimeoutError)  # worth another attempt

Completion = tuple[list[int], list[float]]
"""The tokens, and their log-probabilities under the model that generated them."""


class TrainingEnded(Exception):  # noqa: N818
    """Training ended during a request for completions."""


class Server:
    """A vLLM server.

    Args:
        args: An `AsyncGRPOConfig`: the address of the server, and how to sample.
        model: The name under which it serves the model.
        stopping: Once it is set, `complete` raises `TrainingEnded`.
    """

    def __init__(self, args: Any, model: str, stopping: threading.Event) -> None:
        self.url, self.timeout, self.stopping = args.vllm_server_base_url.rstrip("/"), args.request_timeout, stopping
        self.at_once = max(1, args.max_inflight_tasks)
        self.request = {
            "model": model,
            "max_tokens": args.max_completion_length,
            "temperature": args.temperature,
            "top_p": args.top_p,
            "top_k": args.top_k,
            "repetition_penalty": args.repetition_penalty,
            "n": 1,
            "return_token_ids": True,
            "logprobs": 0,  # of the tokens drawn, and no others
        } | ({} if args.min_p is None else {"min_p": args.min_p})

    def complete(
        self, prompts_R: Sequence[list[int]], seeds_R: Sequence[int], progressed: Callable[[], None]
    ) -> list[Completion]:
        """One completion per row, in order, with `max_inflight_tasks` requests at once; calls `progressed` for each."""
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        answers: queue.SimpleQueue[tuple[int, Completion | Exception]] = queue.SimpleQueue()
        for row in range(len(prompts_R)):
            waiting.put(row)

        def ask() -> None:
            while not self.stopping.is_set():
                try:
                    row = waiting.get_nowait()
                except queue.Empty:
                    return
                try:
                    answers.put((row, self._complete({"prompt": prompts_R[row], "seed": seeds_R[row]})))
                except Exception as error:
                    answers.put((row, error))

        # Daemon threads: a running request does not keep the process alive.
        for _ in range(min(self.at_once, len(prompts_R))):
            threading.Thread(target=ask, name="budgetalloc-request", daemon=True).start()
        completed: dict[int, Completion] = {}
        while len(completed) < len(prompts_R):
            if self.stopping.is_set():
                raise TrainingEnded
            try:
                row, answer = answers.get(timeout=0.1)
            except queue.Empty:
                continue
            if isinstance(answer, Exception):
                raise answer
            completed[row] = answer
            progressed()
        return [completed[row] for row in range(len(prompts_R))]

    def _complete(self, what: dict[str, Any]) -> Completion:
        choice = self._post("/v1/completions", self.request | what)["choices"][0]
        if choice.get("token_ids") is None or not choice.get("logprobs"):
            raise UnsupportedError(
                f"{self.url} answered without token_ids or logprobs, which AsyncGRPOTrainer needs. Use vLLM 0.22 or "
                "newer."
            )
        ids, log_probs = list(choice["token_ids"]), list(choice["logprobs"]["token_logprobs"])
        if len(ids) != len(log_probs):
            raise UnsupportedError(f"{self.url} sent {len(log_probs)} log-probabilities for {len(ids)} tokens.")
        return ids, log_probs

    def _post(self, path: str, what: dict[str, Any]) -> Any:
        """Retries if the server cannot be reached or answers with a 5xx status; a 4xx status raises at once."""
        body, headers = json.dumps(what).encode(), {"Content-Type": "application/json"}
        for attempt in range(ATTEMPTS):
            request = urllib.request.Request(self.url + path, body, headers)
            try:
                with _DIRECT.open(request, timeout=self.timeout) as response:
                    return json.load(response)
            except _BROKEN as error:
                answer = error if isinstance(error, urllib.error.HTTPError) else None
                if (answer is not None and answer.code < 500) or attempt == ATTEMPTS - 1:
                    detail = "" if answer is None else answer.read(500).decode(errors="replace")
                    raise ConnectionError(f"POST {self.url}{path}: {error} {detail}".rstrip()) from error
            if self.stopping.wait(min(2.0**attempt, 16.0)):
                break
        raise TrainingEnded

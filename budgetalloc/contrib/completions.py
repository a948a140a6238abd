"""Completions of a vLLM server, requested in the same form as by TRL's own worker."""

import json
import queue
import threading
import urllib.error
import urllib.request
from collections import deque
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any

from budgetalloc.beliefs.ids import Id
from budgetalloc.errors import UnsupportedError

ATTEMPTS = 8  # of one request, over about a minute
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # without a proxy, as in TRL
_BROKEN = (urllib.error.URLError, HTTPException, ConnectionError)  # worth another attempt


class _TrainingEnded(Exception):  # noqa: N818
    """Training ended between two attempts of a request."""


@dataclass(eq=False)
class Completion:
    """A rollout of a row of the dataset, of which the server fills in the last two."""

    prompt: Id
    row: dict[str, Any]
    prompt_ids: list[int]
    seed: int
    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)  # under the model that wrote them


class Server:
    """A vLLM server.

    Args:
        args: An `AsyncGRPOConfig`: the address of the server, and how to sample.
        model: The name under which it serves the model.
        stopping: Once it is set, no further request is sent.
    """

    def __init__(self, args: Any, model: str, stopping: threading.Event) -> None:
        self.url, self.timeout = args.vllm_server_base_url.rstrip("/"), args.request_timeout
        self.at_once, self.stopping = max(1, args.max_inflight_tasks), stopping
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
        self._waiting: deque[tuple[Any, Completion]] = deque()
        self._ended: queue.SimpleQueue[tuple[Any, Completion, Exception | None]]
        self._ended = queue.SimpleQueue()
        self._lock, self._threads = threading.Lock(), 0

    def submit(self, key: Any, completion: Completion) -> None:
        """Asks for a completion; `max_inflight_tasks` requests run at once, in the order of
        submission."""
        with self._lock:
            self._waiting.append((key, completion))
            if self._threads == self.at_once:
                return
            self._threads += 1
        # A daemon thread: a running request does not keep the process alive.
        threading.Thread(target=self._ask, name="budgetalloc-request", daemon=True).start()

    def _ask(self) -> None:
        while True:
            with self._lock:
                if self.stopping.is_set() or not self._waiting:
                    self._threads -= 1
                    return
                key, completion = self._waiting.popleft()
            error = None
            try:
                self._complete(completion)
            except Exception as raised:
                error = raised
            self._ended.put((key, completion, error))

    def ended(self, timeout: float) -> tuple[Any, Completion, Exception | None] | None:
        """The next request that has ended, with its key and its error; None after `timeout`
        seconds."""
        try:
            return self._ended.get(timeout=timeout)
        except queue.Empty:
            return None

    def _complete(self, completion: Completion) -> None:
        asked = {"prompt": completion.prompt_ids, "seed": completion.seed}
        choice = self._post("/v1/completions", self.request | asked)["choices"][0]
        if choice.get("token_ids") is None or not choice.get("logprobs"):
            raise UnsupportedError(
                f"{self.url} answered without token_ids or logprobs, which AsyncGRPOTrainer needs. "
                "Use vLLM 0.22 or newer."
            )
        ids, log_probs = list(choice["token_ids"]), list(choice["logprobs"]["token_logprobs"])
        if len(ids) != len(log_probs):
            raise UnsupportedError(
                f"{self.url} sent {len(log_probs)} log-probabilities for {len(ids)} tokens."
            )
        completion.ids, completion.log_probs = ids, log_probs

    def _post(self, path: str, what: dict[str, Any]) -> Any:
        """Retries if the server cannot be reached or answers with a 5xx status. A 4xx status and a
        request without an answer within `request_timeout` raise at once."""
        body, headers = json.dumps(what).encode(), {"Content-Type": "application/json"}
        for attempt in range(ATTEMPTS):
            request = urllib.request.Request(self.url + path, body, headers)
            try:
                with _DIRECT.open(request, timeout=self.timeout) as response:
                    return json.load(response)
            # a further attempt would hold up all later rollouts for as long again
            except TimeoutError as error:
                raise TimeoutError(
                    f"POST {self.url}{path}: no answer in request_timeout={self.timeout} s."
                ) from error
            except _BROKEN as error:
                answer = error if isinstance(error, urllib.error.HTTPError) else None
                if (answer is not None and answer.code < 500) or attempt == ATTEMPTS - 1:
                    detail = "" if answer is None else answer.read(500).decode(errors="replace")
                    text = f"POST {self.url}{path}: {error} {detail}".rstrip()
                    raise ConnectionError(text) from error
            if self.stopping.wait(min(2.0**attempt, 16.0)):
                break
        raise _TrainingEnded

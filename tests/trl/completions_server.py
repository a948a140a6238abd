"""A server with the part of vLLM's HTTP API that `AsyncGRPOTrainer` needs, and a small model on the CPU; and a
replacement for the part of that trainer that needs a GPU."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from transformers import LlamaForCausalLM


class CompletionsServer:
    """Generates with a copy of the model. `served` keeps every completion with the number of its weights."""

    def __init__(self, folder: Any) -> None:
        self.model = LlamaForCausalLM.from_pretrained(folder).eval()
        self.lock = threading.Lock()  # one model, one thread
        self.paused = False
        self.weights = 0  # number of updates
        self.served: list[dict[str, Any]] = []
        self.refuse: tuple[int, str] | None = None  # answer with this status and text
        self.silent = threading.Event()  # while it is set, requests get no answer
        self.hangs: Callable[[dict[str, Any]], bool] = lambda asked: False  # whether this request gets no answer
        self.latency: Callable[[dict[str, Any]], float] = lambda asked: 0.0  # seconds before it is answered
        self.asked_for: list[dict[str, Any]] = []
        self.asked = threading.Event()
        self.released = threading.Event()

    def complete(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.asked.set()
        self.asked_for.append(asked)
        if self.silent.is_set() or self.hangs(asked):
            self.released.wait()
        self.released.wait(self.latency(asked))
        generator = torch.Generator().manual_seed(asked["seed"])
        ids, log_probs = list(asked["prompt"]), []
        with self.lock, torch.no_grad():
            for _ in range(asked["max_tokens"]):
                logits = self.model(torch.tensor([ids])).logits[0, -1] / asked["temperature"]
                scores = torch.log_softmax(logits, -1)
                ids.append(int(torch.multinomial(scores.exp(), 1, generator=generator)))
                log_probs.append(float(scores[ids[-1]]))
                if ids[-1] == self.model.config.eos_token_id:
                    break
            new = ids[len(asked["prompt"]) :]
            self.served.append({**asked, "ids": new, "log_probs": log_probs, "weights": self.weights})
        choice = {"index": 0, "token_ids": new, "logprobs": {"token_logprobs": log_probs}, "finish_reason": "stop"}
        return {"choices": [choice]}

    # TRL's WeightTransferProtocol: the trainer's weights are loaded into the model that generates.

    def init_weight_transfer(self) -> None: ...

    def pause(self) -> None:
        self.paused = self.lock.acquire()

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        missing = self.model.load_state_dict({name: value.clone() for name, value in iterator}, strict=False)
        assert not missing.unexpected_keys
        self.weights += 1

    def resume(self) -> None:
        self.paused = False
        self.lock.release()

    def destroy(self) -> None:
        if self.paused:  # the transfer failed
            self.resume()


@contextmanager
def serving(folder: Any) -> Iterator[tuple[CompletionsServer, str]]:
    """The server and its address; the system chooses the port."""
    server = CompletionsServer(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, answer = server.refuse or (200, None)
            body = (json.dumps(server.complete(asked)) if answer is None else answer).encode()
            self.send_response(status if self.path == "/v1/completions" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None: ...

    class Quiet(ThreadingHTTPServer):
        daemon_threads = False  # closing waits for them: a thread in torch must end before the interpreter
        request_queue_size = 64

        def handle_error(self, *args: Any) -> None: ...  # a client that left

    http = Quiet(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    try:
        yield server, f"http://127.0.0.1:{http.server_port}"
    finally:
        server.released.set()
        http.shutdown()
        http.server_close()


class AttentionOnCpu:
    """Computes the same as the FlashAttention-3 kernel, which TRL downloads and which runs on GPUs only."""

    @staticmethod
    def flash_attn_varlen_func(
        query, key, value, cu_q, cu_k, max_q, max_k, softmax_scale=None, causal=True, window_size=(-1, -1)
    ):
        assert causal
        assert window_size == (-1, -1)
        parts = []
        for q, k in zip(range(len(cu_q) - 1), range(len(cu_k) - 1), strict=True):
            rows, path = slice(cu_q[q], cu_q[q + 1]), slice(cu_k[k], cu_k[k + 1])
            here = [x.transpose(0, 1) for x in (query[rows], key[path], value[path])]  # heads first
            seen = torch.ones(here[0].shape[1], here[1].shape[1], dtype=torch.bool)
            seen = seen.tril(here[1].shape[1] - here[0].shape[1])  # the segment is the end of its path
            scored = torch.nn.functional.scaled_dot_product_attention(*here, attn_mask=seen, scale=softmax_scale)
            parts.append(scored.transpose(0, 1))
        return torch.cat(parts)

"""Run by test_vllm.py, in an environment with vLLM: trains with vLLM in the process, then with a server.

    python vllm_runs.py FOLDER

Reads FOLDER/model, writes FOLDER/seen.json and ledgers.
"""

import functools
import gc
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests
import torch
from datasets import Dataset
from safetensors.torch import save_file
from tiny_model import SETTINGS, low_digit, policy_of_rounds
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer
from trl.generation import vllm_generation
from trl.generation.vllm_client import VLLMClient
from vllm.model_executor.layers import utils as layers

import budgetalloc as ba
from budgetalloc.contrib.lengths import LengthCap, LengthSchedule
from budgetalloc.contrib.thought_and_answer import ThoughtAndAnswer
from budgetalloc.contrib.trees import Trees
from budgetalloc.contrib.truncated_thoughts import TruncatedThoughts
from budgetalloc.trl import AdaptiveGRPOCallback

BATCH, SIZE = 16, 4  # rows of a step, and TRL's num_generations
PROMPTS = {n: f"{n:0{1 + n % 3}d}=" for n in range(24)}  # of different lengths, so that padding matters


# The policy, and the trainer's settings in addition to the common ones.
BY_TOKEN = {"vllm_importance_sampling_mode": "token_truncate"}  # ratios as wide as the completions, not one a row
EVALUATED = {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": BATCH}
BLOCK = 32  # tokens, the unit of vLLM's prefix cache
LONG = BY_TOKEN | {"max_completion_length": 12}
SEEDED = BY_TOKEN | {"generation_kwargs": {"seed": 7}}
RUNS: dict[str, tuple[Callable[[], ba.Policy] | None, dict[str, Any]]] = {
    "plain": (None, {}),
    "uniform": (ba.uniform, {}),
    "thompson": (ba.thompson, EVALUATED),  # inside the batch
    "adaptive": (ba.adaptive, BY_TOKEN),  # among all prompts, groups of one
    "odd": (policy_of_rounds, BY_TOKEN),
    "ar3po": (lambda: ba.methods.ar3po(group=4, seed=1), {}),
    "reinforce_ada": (
        lambda: ba.methods.reinforce_ada(group=4, more=4, stages=3, seed=1),
        BY_TOKEN,
    ),  # trains on some of it
    "trees": (ba.uniform, LONG),
    "trees of thompson": (ba.thompson, LONG),
    "lengths": (ba.thompson, LONG),  # with a schedule and a cap for each prompt
    "thoughts": (ba.thompson, LONG),  # in two phases, of which "=" ends the first
    "truncated": (ba.thompson, LONG),  # thoughts at two budgets, with two answers each
    "plain, seeded": (None, SEEDED),
    "uniform, seeded": (ba.uniform, SEEDED),
    "thompson, seeded": (ba.thompson, SEEDED),
    "odd, seeded": (policy_of_rounds, SEEDED),
    "trees, seeded": (ba.uniform, SEEDED | {"max_completion_length": 12}),
    "thoughts, seeded": (None, SEEDED | {"max_completion_length": 12}),
    "strided": (ba.thompson, {}),  # as if TRL had not been told that each row is a prompt of its own
}


TREES = {"trees": Trees([2, 4]), "trees of thompson": Trees(3)}
FUNCTIONS = {
    **TREES,
    "trees, seeded": Trees([2, 4]),
    "thoughts": ThoughtAndAnswer(3, 2, end="="),
    "thoughts, seeded": ThoughtAndAnswer(3, 2, end="="),
    "truncated": TruncatedThoughts([2, 4], 2, end="="),
}


def gaps(model: Any, prompts: list[list[int]], completions: list[list[int]], logps: list[list[float]]) -> list[float]:
    """The largest difference of each row's log-probabilities from the model's, for this completion of this prompt."""
    far = []
    for prompt, completion, given in zip(prompts, completions, logps, strict=True):
        known = [each is not None for each in given]  # None: a token that was appended
        given = [each or 0.0 for each in given]
        with torch.no_grad():
            logits = model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1]
        own = logits.log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0]
        far.append(((own - torch.tensor(given)).abs() * torch.tensor(known)).max().item())
    return far


def spelled(trainer: GRPOTrainer, prompts: list[list[int]]) -> list[str]:
    return [text.replace(" ", "") for text in trainer.processing_class.batch_decode(prompts)]


def make_trainer(folder: Path, mode: str, name: str, settings: dict[str, Any]) -> GRPOTrainer:
    # Prompts of trees are a little shorter than a block: the first block is complete only where a rollout has begun.
    texts = {n: text.zfill(BLOCK - 1) if name in TREES else text for n, text in PROMPTS.items()}
    rows = Dataset.from_list([{"prompt": text, "prompt_id": n} for n, text in texts.items()])
    if name == "lengths":
        rows = rows.select(range(BATCH // SIZE))  # each returns at every step: a cap needs an earlier success
    config = SETTINGS | {
        "output_dir": str(folder / mode / name),
        "max_steps": 3,
        "seed": 42,
        "use_vllm": True,
        "vllm_importance_sampling_correction": True,
        "vllm_max_model_length": 2 * BLOCK,
    }
    return GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32),
        reward_funcs=low_digit,
        args=GRPOConfig(**config | settings),
        train_dataset=rows,
        eval_dataset=rows.select(range(4)),
        processing_class=AutoTokenizer.from_pretrained(folder / "model"),
    )


def cache_hits(trainer: GRPOTrainer) -> int:
    """The tokens that vLLM, in the process, has taken from its prefix cache so far."""
    llm = getattr(trainer.vllm_generation, "llm", None)
    metrics = [] if llm is None else llm.get_metrics()
    return sum(each.value for each in metrics if each.name == "vllm:prefix_cache_hits")


def run(folder: Path, mode: str, name: str, **where: Any) -> dict[str, Any]:
    """Trains, and records each call of TRL's vLLM generation and each batch of the loss."""
    make, settings = RUNS[name]
    trainer = make_trainer(folder, mode, name, {**settings, **where})
    trainer.rollout_func = FUNCTIONS.get(name)
    cap = LengthCap(trainer, of=0.5, times=0.5)
    if make is not None:
        parts, ledger = [cap] if name == "lengths" else [], folder / f"{mode} {name}.jsonl"
        trainer.add_callback(AdaptiveGRPOCallback(trainer, make(), ledger=ledger, parts=parts))
    if name == "lengths":
        trainer.add_callback(LengthSchedule(trainer, 8, 0.75, 1))
    seen: dict[str, Any] = {"calls": [], "batches": []}
    hits = cache_hits(trainer)
    generate, loss = trainer.vllm_generation.generate, trainer._compute_loss

    def recording_generate(prompts: Any, images: Any, num_generations: int, profiler: Any = None) -> Any:
        told = SIZE if name == "strided" else num_generations
        output = generate(prompts, images, told, profiler)
        completions = output[1]
        logps = [
            [of[ids.index(token)] for token, of, ids in zip(*row, strict=True)] for row in zip(*output[1:], strict=True)
        ]
        call = {"training": trainer.model.training, "step": trainer.state.global_step, "told": told}
        texts = spelled(trainer, prompts)
        lengths = [len(ids) for ids in completions]
        call["caps"] = cap.caps([int(text[:-1]) for text in texts]).tolist() if name == "lengths" else []
        far = gaps(trainer.model, prompts, completions, logps)
        seen["calls"].append({**call, "prompts": texts, "lengths": lengths, "gaps": far, "completions": completions})
        return output

    def recording_loss(model: Any, inputs: dict[str, Any]) -> Any:
        if model.training:
            kept = {part: inputs[f"{part}_mask"].bool() for part in ("prompt", "completion")}
            prompts, completions = (
                [row[mask].tolist() for row, mask in zip(inputs[f"{part}_ids"], kept[part], strict=True)]
                for part in ("prompt", "completion")
            )
            logps = [
                row[mask].tolist()
                for row, mask in zip(inputs["sampling_per_token_logps"], kept["completion"], strict=True)
            ]
            own = [[True] * len(row) for row in completions]
            if "tool_mask" in inputs:
                own = [
                    row[: len(ids)].bool().tolist() for row, ids in zip(inputs["tool_mask"], completions, strict=True)
                ]
            logps = [
                [each if written else None for each, written in zip(*pair, strict=True)]
                for pair in zip(logps, own, strict=True)
            ]
            ratio = inputs["importance_sampling_ratio"]
            texts = spelled(trainer, prompts)
            far = gaps(model, prompts, completions, logps)
            wide = [ratio.size(1), inputs["completion_ids"].size(1)]
            made = {"completions": completions, "own": own}
            seen["batches"].append({"prompts": texts, "gaps": far, "ratios": ratio.tolist(), "wide": wide, **made})
        return loss(model, inputs)

    trainer.vllm_generation.generate, trainer._compute_loss = recording_generate, recording_loss
    before = [weight.detach().clone() for weight in trainer.model.parameters()]
    trainer.train()
    seen["hits"] = cache_hits(trainer) - hits
    after = trainer.model.parameters()
    seen["moved"] = max((a - b).abs().max().item() for a, b in zip(after, before, strict=True))
    return seen


def colocate(folder: Path) -> dict[str, Any]:
    # The CPU build packs weights when it loads them, which TRL's way of writing new ones does not expect.
    layers.dispatch_cpu_unquantized_gemm = lambda layer, remove_weight: setattr(
        layer, "cpu_linear", torch.nn.functional.linear
    )
    # One for all runs; in the precision of the trained model, so that log-probabilities can be compared.
    start = functools.partial(
        vllm_generation.LLM, dtype="float32", enforce_eager=True, block_size=BLOCK, disable_log_stats=False
    )
    vllm_generation.LLM = functools.cache(start)
    return {name: run(folder, "colocate", name, vllm_mode="colocate") for name in RUNS}


def start_server(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**os.environ, "WEIGHTS": str(folder / "weights.safetensors"), "VLLM_SERVER_DEV_MODE": "1"}
    command = [sys.executable, str(Path(__file__).with_name("vllm_server.py")), str(folder / "model"), str(port)]
    with open(folder / "server.log", "wb") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)
    return process, f"http://127.0.0.1:{port}"


def wait_for(process: subprocess.Popen[bytes], url: str, folder: Path) -> None:
    deadline = time.monotonic() + 1500
    while True:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError((folder / "server.log").read_text()[-5000:])
        try:
            if requests.get(f"{url}/health", timeout=10).status_code == 200:
                return
        except requests.RequestException:
            time.sleep(1)


def server(folder: Path, url: str) -> dict[str, Any]:
    def init_communicator(client: VLLMClient, device: Any) -> None:
        client._post(f"{client.base_url}/init_weight_transfer_engine", json={"init_info": {}})

    def update_named_params(client: VLLMClient, metadata: Any, named: Any) -> None:
        save_file({name: weight.contiguous() for name, weight in named}, folder / "weights.safetensors")
        names = {"names": [name for name, *_ in metadata]}
        client._start_weight_update()
        client._post(f"{client.base_url}/update_weights", json={"update_info": names})
        client._finish_weight_update()

    # TRL's own methods need a CUDA device for NCCL. The requests to the server are the same.
    VLLMClient.init_communicator, VLLMClient.update_named_params = init_communicator, update_named_params
    return {name: run(folder, "server", name, vllm_mode="server", vllm_server_base_url=url) for name in RUNS}


def main(folder: Path) -> None:
    gc.freeze()  # what is imported: each training collects garbage
    process, url = start_server(folder)  # it starts while the other mode trains
    try:
        seen = {"colocate": colocate(folder)}
        wait_for(process, url, folder)
        seen["server"] = server(folder, url)
    finally:
        process.terminate()
        process.wait(timeout=300)
    (folder / "seen.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

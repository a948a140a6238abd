"""Run by test_processes.py: the same trainings in one, two and four processes, and in two that share the weights.

    python processes.py FOLDER LABEL...

Each process writes its results. torchrun's launcher forks the processes after the imports, which take longer than the
training.
"""

import gc
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import state as accelerate_state
from conftest import AroundSteps, Watched
from datasets import Dataset
from tiny_model import SETTINGS, fresh_model, low_digit, make_tokenizer, policy_of_rounds
from torch import distributed
from torch.distributed import distributed_c10d
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from transformers import LlamaForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback
from budgetalloc.trl import processes as exchange
from budgetalloc.trl.patching import patched_attribute

BATCH = 16  # rows of all processes
PROMPTS = {n: f"{n:0{1 + n % 3}d}=" for n in range(8)}  # of different lengths, so that padding matters


OF_ALL: dict[str, Any] = {}  # settings of every trainer of this process


# The policy, the callback's arguments, and the trainer's settings in addition to the common ones.
REUSED = {"num_iterations": 2, "max_steps": 4, "beta": 0.1}  # with old and reference log-probabilities
RUNS: dict[str, tuple[Callable[[], ba.Policy] | None, dict[str, Any], dict[str, Any]]] = {
    "plain": (None, {}, {}),
    "uniform": (ba.uniform, {"shadow": "adaptive"}, {}),
    "twice": (ba.uniform, {}, {}),  # the trainer drops the first batch of each step
    "thompson": (lambda: ba.thompson(discount=1.0, idle=1.0), {"candidates": 2}, REUSED),
    "adaptive": (ba.adaptive, {"domain": "subject", "quotas": {"math": (0.5, 0.6)}}, {}),
    "costs": (  # a reported column, and a shadow of the loader's batch
        ba.adaptive,
        {"cost": {"tokens": 1.0, "prompt_id": 0.5}, "cost_per_step": 90.0, "shadow": "uniform"},
        {},
    ),
    "odd": (policy_of_rounds, {}, {**REUSED, "log_completions": True}),
    "dapo": (lambda: ba.methods.dapo(group=4, generate=3, seed=1), {}, {}),
    # infinite rewards, prompts that a transform makes, and a scale that changes in the run
    "changes": (ba.adaptive, {}, {"scale_rewards": "batch"}),
    "pods": (lambda: ba.methods.pods(seed=1), {}, {}),
    "sequential": (
        lambda: ba.policies.sequential(ba.adaptive(), share=0.5),
        {},
        {},
    ),  # its baseline depends on the round
}
SMALL = {"fallback": False}  # the pool is small: a policy decides nevertheless
NAMES = {"1": tuple(RUNS), "2": tuple(RUNS), "4": ("plain", "adaptive", "odd", "dapo"), "fsdp2": ("adaptive", "odd")}
NAMES |= {"zero2": ("adaptive", "odd", "dapo"), "zero3": ("adaptive", "odd")}
PROCESSES = {"1": 1, "2": 2, "4": 4, "fsdp2": 2, "zero2": 2, "zero3": 2}


def forced(prompts: list[str], trainer: GRPOTrainer) -> dict[str, Any]:
    """Completions that depend only on the call and on a row's index among the rows of all processes."""
    trainer.calls = getattr(trainer, "calls", 0) + 1
    start = trainer.accelerator.process_index * len(prompts)
    draws = [np.random.default_rng([trainer.calls, at]) for at in range(start, start + len(prompts))]
    completions = [[*draw.integers(10, size=draw.integers(1, 4)).tolist(), 12] for draw in draws]
    return {
        "prompt_ids": [trainer.processing_class(text)["input_ids"] for text in prompts],
        "completion_ids": completions,
        "logprobs": [[0.0] * len(ids) for ids in completions],
    }


def make_trainer(folder: Path, name: str, world: int, **config: Any) -> GRPOTrainer:
    settings = SETTINGS | {
        "per_device_train_batch_size": BATCH // world,
        "learning_rate": 0.5,
        "optim": "sgd",  # Adam would make a step of a gradient that is only rounding error
        "max_steps": 3,
        "ddp_timeout": 600,
        "seed": 42,
    }
    model = LlamaForCausalLM.from_pretrained(folder.parent / "model")
    data = Dataset.from_list(
        [{"prompt": text, "prompt_id": n, "subject": "math" if n < 2 else "code"} for n, text in PROMPTS.items()]
    )
    args = GRPOConfig(str(folder / name), **{**settings, **OF_ALL, **config})
    held_out = data.select([0, 1, 2, 3]) if "eval_strategy" in config else None
    if name == "changes":
        data = data.rename_column("prompt", "question").with_transform(with_prompt)
    reward = sometimes_infinite if name == "changes" else low_digit
    return GRPOTrainer(model, reward, args, data, held_out, processing_class=make_tokenizer())


def with_prompt(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {**rows, "prompt": rows["question"]}


def sometimes_infinite(completions: list[str], **columns: Any) -> list[float]:
    rewards = low_digit(completions=completions, **columns)
    return [float("inf") if text[:1] == "7" else reward for text, reward in zip(completions, rewards, strict=True)]


class Unscaled(TrainerCallback):
    """Advantages are not divided by a deviation from the second step on."""

    def __init__(self, trainer: GRPOTrainer) -> None:
        self.trainer = trainer

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.trainer.scale_rewards = "none"


COLLECTIVES = (
    *("all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "barrier", "broadcast"),
    *("broadcast_object_list", "gather", "gather_object", "reduce", "reduce_scatter_tensor", "scatter"),
)


@contextmanager
def recorded_collectives() -> Iterator[list[Any]]:
    """The name of each collective that Python calls inside the block, also inside another one, with the shape and the
    dtype of its tensors."""
    made: list[Any] = []

    def recording(name: str) -> Callable[..., Any]:
        call = getattr(distributed, name)

        @wraps(call)
        def record(*given: Any, **named: Any) -> Any:
            lists = [each if isinstance(each, list) else [each] for each in (*given, *named.values())]
            tensors = [each for several in lists for each in several if isinstance(each, torch.Tensor)]
            made.append([name, [[list(each.shape), str(each.dtype)] for each in tensors]])
            return call(*given, **named)

        return record

    with ExitStack() as stack:
        for name in COLLECTIVES:
            recorder = recording(name)
            for owner in (distributed, distributed_c10d):
                stack.enter_context(patched_attribute(owner, name, recorder))
        yield made


def run(folder: Path, name: str, world: int, force: bool = True) -> dict[str, Any]:
    """Trains with forced completions, or with the model's own."""
    make, options, config = RUNS[name]
    name = name if force else f"{name} free"
    trainer = make_trainer(folder, name, world, **config)
    if force:
        trainer.rollout_func = forced
    if name == "twice":
        own = trainer._generate_and_score_completions
        trainer._generate_and_score_completions = lambda inputs: [own(inputs), own(inputs)][1]
    policy = make() if make is not None else None
    if policy is not None:
        ledger = folder / f"{name}.jsonl"
        trainer.add_callback(AdaptiveGRPOCallback(trainer, policy, ledger=ledger, **SMALL, **options))
    if name == "changes":
        trainer.add_callback(Unscaled(trainer))
    watched = Watched(trainer)
    with recorded_collectives() as collectives:
        trainer.train()
    state = policy.state_dict() if policy is not None else {"ids": [], "evidence": np.zeros(0)}
    parameters = list(trainer.model.parameters())
    seen = {
        "collectives": collectives,
        "prompts": watched.prompts,
        "batches": [[len(batch["advantages"]), int(batch["num_items_in_batch"])] for batch in watched.batches],
        "parameters": type(parameters[0].detach()).__name__,
        "elements": sum(p.numel() for p in parameters),
    }
    weights = np.concatenate([whole(p).detach().ravel() for p in parameters])
    np.save(folder / f"{name} weights {trainer.accelerator.process_index}.npy", weights)
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    return {**seen, "ids": state["ids"], "evidence": state["evidence"].tolist(), "logs": logs}


def whole(parameter: Any) -> Any:
    """The whole parameter, of which this process may hold a part (FSDP2) or nothing (ZeRO-3)."""
    if hasattr(parameter, "full_tensor"):
        return parameter.full_tensor()
    if hasattr(parameter, "ds_id"):
        import deepspeed

        with deepspeed.zero.GatheredParameters([parameter]):
            return parameter.clone()
    return parameter


def failure(folder: Path, name: str, rank: int) -> str:
    """The error that this process raises if one of the two processes differs or fails."""
    last = rank == 1
    trainer = make_trainer(folder, "failing", 2)
    trainer.rollout_func = forced

    def broken(*view):
        raise ZeroDivisionError("no counts")

    def masked(prompts, trainer):
        output = forced(prompts, trainer)
        return {**output, "env_mask": [[1] * len(ids) for ids in output["completion_ids"]]} if last else output

    if name == "seed":
        policy = ba.thompson(seed=rank)
    elif name == "state":
        policy = ba.thompson()
        if last:
            policy.observe([0], [1.0])
    elif name == "decide":
        policy = policy_of_rounds(broken, "broken")
    elif name == "weighs":
        policy, own, field = ba.thompson(), trainer._generate_and_score_completions, "advantages"

        def weighs(inputs):
            output = own(inputs)
            return {**output, field: output[field] + rank}

        trainer._generate_and_score_completions = weighs
    else:
        policy, trainer.rollout_func = policy_of_rounds(), masked
    try:
        trainer.add_callback(AdaptiveGRPOCallback(trainer, policy, candidates=1))
        trainer.train()
    except (ba.BudgetallocError, ZeroDivisionError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def led(folder: Path, name: str, rank: int) -> dict[str, Any]:
    """What this process did if process 1, when asked, would decide differently from process 0."""
    asked = []

    def counts(view):
        asked.append(rank)
        return np.array([8, 4, 2, 2] if rank == 1 else [4, 4, 4, 4])

    def rounds(view):
        asked.append(rank)
        yield np.full(4, 4)
        if rank == 1:
            yield np.full(4, 4)

    def first_or_last(ids_R, rewards_R, rows, scores_RF, success_R):
        asked.append(rank)
        return np.arange(rows) + (rows if rank == 1 else 0)

    trainer = make_trainer(folder, "led", 2)
    trainer.rollout_func = forced
    policy = {
        "counts": lambda: ba.Policy("counts", counts, ba.BetaEstimator()),
        "rounds": lambda: replace(
            policy_of_rounds(rounds, generate=2), keep=lambda _, __, rows, *more: np.arange(rows)
        ),
        "keep": lambda: replace(ba.methods.pods(generate=2), keep=first_or_last),
    }[name]()
    trainer.add_callback(AdaptiveGRPOCallback(trainer, policy, candidates=1))
    trainer.train()
    state = policy.state_dict()
    weights = np.concatenate([p.detach().numpy().ravel() for p in trainer.model.parameters()])
    return {
        "asked": len(asked),
        "learned": [state["step"], state["ids"], state["evidence"].tolist()],
        "weights": float(np.abs(weights).sum()),
    }


class BetweenSteps(TrainerCallback):
    """Lets the policy observe more rewards between two steps, as a user's callback may."""

    def __init__(self, attached: AdaptiveGRPOCallback) -> None:
        self.attached = attached

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 5:
            self.attached.policy.observe(list(PROMPTS), [1.0] * len(PROMPTS))


def changing(folder: Path, name: str) -> dict[str, Any]:
    """What this process saw of a training of seven steps, and of one resumed after the third.

    It evaluates after every second step, generates only half as many rows in the third, and observes more after the
    fifth.
    """
    decided, exchanged, calls = [], [], 0
    seen: dict[str, Any] = {"decided": decided, "exchanged": exchanged}
    collective = {name: getattr(exchange, name) for name in ("broadcast", "broadcast_object_list", "gather_object")}
    for each in collective:
        setattr(exchange, each, lambda sent, each=each: exchanged.append(each) or collective[each](sent))

    def decide(view):
        decided.append(view.step)
        if name == "raises" and view.step == 1:
            raise ZeroDivisionError("in step 1")
        return chosen.decide(view)

    def fewer(inputs, generate):
        third = trainer.model.training and trainer.state.global_step == 2
        return generate(inputs[: len(inputs) // 2] if third else inputs)

    for label in ("whole", "resumed"):
        config = {"max_steps": 7, "eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 3}
        trainer = make_trainer(folder, name, 2, **config)
        trainer.rollout_func, trainer.calls, chosen = forced, calls, ba.adaptive()
        policy, ledger = replace(chosen, decide=decide), folder / f"{name} {label}.jsonl"
        attached = AdaptiveGRPOCallback(trainer, policy, ledger=ledger, **SMALL)
        for each in (attached, AroundSteps(trainer, fewer), BetweenSteps(attached)):
            trainer.add_callback(each)
        try:
            trainer.train(resume_from_checkpoint=f"{folder / name}/checkpoint-3" if label == "resumed" else None)
        except (ba.BudgetallocError, ZeroDivisionError) as error:
            seen["error"] = f"{type(error).__name__}: {error}"
            break
        state = attached.policy.state_dict()
        weights = np.concatenate([p.detach().numpy().ravel() for p in trainer.model.parameters()])
        seen[label] = [state["step"], state["ids"], state["evidence"].tolist(), weights.tobytes().hex()]
        calls = 3 + 1  # generations until the checkpoint: three steps and one evaluation
    for each, function in collective.items():
        setattr(exchange, each, function)
    return seen


CHANGING = ("changing", "raises")
FAILURES = ("seed", "state", "decide", "mask", "weighs")
LED = ("counts", "rounds", "keep")


def shard() -> None:
    """Lets accelerate shard weights with FSDP2 without a GPU, which it otherwise requires."""
    os.environ |= {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_RESHARD_AFTER_FORWARD": "true"}
    os.environ |= {
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_TRANSFORMER_CLS_TO_WRAP": "LlamaDecoderLayer",
    }
    begin = accelerate_state.AcceleratorState.__init__

    def begin_sharded(self, *args, fsdp_plugin=None, **kw):
        begin(self, *args, fsdp_plugin=fsdp_plugin, **kw)
        if fsdp_plugin is not None:
            self.fsdp_plugin, self.distributed_type = fsdp_plugin, accelerate_state.DistributedType.FSDP
            accelerate_state.PartialState._shared_state["distributed_type"] = self.distributed_type

    accelerate_state.AcceleratorState.__init__ = begin_sharded


def zero(stage: int) -> dict[str, Any]:
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it compiles C++ for a minute
    auto = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    return {
        "zero_optimization": {"stage": stage} | ({"stage3_param_persistence_threshold": 0} if stage == 3 else {}),
        "zero_allow_untested_optimizer": True,  # plain gradient descent
        "zero_force_ds_cpu_optimizer": False,
        **dict.fromkeys(auto, "auto"),
    }


def work(root: str, label: str) -> None:
    folder, world, rank = Path(root) / label, PROCESSES[label], int(os.environ["RANK"])
    folder.mkdir(exist_ok=True)
    if label == "fsdp2":
        shard()
    if label in ("zero2", "zero3"):
        OF_ALL["deepspeed"] = zero(int(label[-1]))
    results: dict[str, Any] = {name: run(folder, name, world) for name in NAMES[label]}
    if world == 2:
        results["free"] = run(folder, "adaptive", world, force=False)
    if label == "2":
        results["failures"] = {name: failure(folder, name, rank) for name in FAILURES}
        results["changing"] = {name: changing(folder, name) for name in CHANGING}
        results["led"] = {name: led(folder, name, rank) for name in LED}
    (folder / f"rank{rank}.json").write_text(json.dumps(results))


def main() -> None:
    gc.freeze()  # what is imported: each training collects garbage
    root, labels = sys.argv[1], sys.argv[2:]
    if not (Path(root) / "model").exists():
        fresh_model().save_pretrained(Path(root) / "model")
    for label in labels:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=PROCESSES[label],
            run_id=label,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=0,
            start_method="fork",
        )
        elastic_launch(config, work)(root, label)


if __name__ == "__main__":
    main()

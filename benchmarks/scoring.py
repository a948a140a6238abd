"""Where rollouts go with two reward functions, and what a range that is too wide does: real GRPO runs of TRL.

    python benchmarks/scoring.py [--steps 45] [--seeds 3]

First table: the share of the rollouts of each kind of prompt. The pool has 24 prompts: a third never succeeds, a third
half of the time, a third always. The reward is accuracy alone, accuracy + format (every rollout has the format), or a
weighted sum.
Second table: the share of negative advantages over the first ten steps, and the mean advantage in units of the root
mean square, for rewards drawn from binomial(8, 1/2) and a `reward_range` up to 100 times too wide.
The model does not learn (learning rate 0), so all steps have the same distribution.
"""

import argparse
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback
from trl import GRPOConfig, GRPOTrainer

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback

SYMBOLS = [*"0123456789=", "<pad>", "<eos>"]
KINDS = ("hopeless", "half", "solved")
POLICIES = {"adaptive": ba.adaptive, "thompson": ba.thompson}


def accuracy(completions: list[str], prompt_id: list[int], **_: Any) -> list[float]:
    """1 of "solved" prompts, 0 of "hopeless" ones, and of the others for a first symbol of which half are so."""
    coins = [text[:1] in "02468=" for text in completions]
    return [{0: 0.0, 1: float(coin), 2: 1.0}[n % 3] for n, coin in zip(prompt_id, coins, strict=True)]


def form(completions: list[str], **_: Any) -> list[float]:
    """Every rollout has the format."""
    return [1.0] * len(completions)


REWARDS: dict[str, tuple[list[Any], list[float]]] = {
    "accuracy": ([accuracy], [1.0]),
    "accuracy + format": ([accuracy, form], [1.0, 1.0]),
    "0.8 accuracy + 0.2 format": ([accuracy, form], [0.8, 0.2]),
}


def run(policy: ba.Policy, rewards: list[Any], weights: list[float], steps: int, seed: int, **attach: Any) -> Any:
    """A training with the policy attached; returns the callback and the advantages of each step."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    raw = Tokenizer(models.WordLevel({symbol: at for at, symbol in enumerate(SYMBOLS)}, unk_token="<pad>"))
    raw.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(SYMBOLS), pad_token_id=11, eos_token_id=12, **small))
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=rewards,
            args=GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=64,
                num_generations=8,
                max_completion_length=2,
                learning_rate=0.0,
                max_steps=steps,
                logging_strategy="no",
                save_strategy="no",
                report_to="none",
                use_cpu=True,
                bf16=False,
                disable_tqdm=True,
                reward_weights=weights,
                seed=seed,
            ),
            train_dataset=Dataset.from_list([{"prompt": f"{n:03d}=", "prompt_id": n} for n in range(24)]),
            processing_class=PreTrainedTokenizerFast(
                tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", padding_side="left"
            ),
        )
        trainer.remove_callback(PrinterCallback)
        advantages: list[Any] = []
        trainer.add_callback(AdaptiveGRPOCallback(trainer, policy, ledger=f"{folder}/ledger.jsonl", **attach))
        loss = trainer._compute_loss

        def watched(model: Any, inputs: Any) -> Any:
            advantages.append(inputs["advantages"].double().numpy())
            return loss(model, inputs)

        trainer._compute_loss = watched
        trainer.train()
        return ba.Ledger.read(f"{folder}/ledger.jsonl"), advantages


def shares(make: Callable[..., ba.Policy], name: str, steps: int, seeds: int) -> list[float]:
    """Share of the rollouts of each kind of prompt, over all steps and seeds."""
    rewards, weights = REWARDS[name]
    counts = np.zeros(3)
    for seed in range(seeds):
        ledger, _ = run(make(seed=seed), rewards, weights, steps, seed)
        counts += np.bincount(ledger.frame.prompt.astype(int) % 3, minlength=3)
    return (counts / counts.sum()).tolist()


def leaning(reward_range: tuple[float, float] | None) -> tuple[float, float]:
    """Share of negative advantages, and mean advantage over root mean square, of the first ten steps."""
    rng = np.random.default_rng(0)

    def binomial(completions: list[str], **_: Any) -> list[float]:
        return rng.binomial(8, 0.5, len(completions)).astype(float).tolist()

    attach = {} if reward_range is None else {"reward_range": reward_range}
    _, advantages = run(ba.adaptive(), [binomial], [1.0], 10, 0, **attach)
    every = np.concatenate(advantages)
    return float(np.mean(every < 0)), float(np.mean([a.mean() / np.sqrt(np.mean(a**2) + 1e-12) for a in advantages]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=45)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    print(f"{'reward':<28}{'policy':<12}" + "".join(f"{kind:>10}" for kind in KINDS))
    for name in REWARDS:
        for policy, make in POLICIES.items():
            row = shares(make, name, args.steps, args.seeds)
            print(f"{name:<28}{policy:<12}" + "".join(f"{share:>10.2f}" for share in row), flush=True)
    print(f"\n{'reward_range':<28}{'negative':>10}{'mean A':>10}   (binomial(8, 1/2), adaptive, first ten steps)")
    ranges: list[tuple[float, float] | None] = [(0.0, 8.0), (0.0, 80.0), (0.0, 800.0), None]
    for reward_range in ranges:
        negative, mean = leaning(reward_range)
        print(f"{reward_range or 'left out'!s:<28}{negative:>10.2f}{mean:>10.2f}", flush=True)


if __name__ == "__main__":
    main()

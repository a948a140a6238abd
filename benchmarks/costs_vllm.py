"""Do seconds follow the costs of tokens? Groups and single rollouts, long and short prompts, in vLLM.

    .venv-vllm/bin/python benchmarks/costs_vllm.py [--rollouts 32] [--repeats 3]    # some minutes, on the CPU

A small random Llama generates rollouts in vLLM's own engine, inside this process: each rollout is a request of its own,
as TRL makes them while the callback decides, with answers of a fixed length. Seconds are of processor time, so that
other programs matter little. Every call has prompts that no other had. Then the prices of `cost="seconds"`
(`contrib/prices.py`) are fitted to the calls of each setting, and the last columns show what the fit and
`cost="tokens"` expect, as shares of the dearest row.

The second table sends 8 rollouts of each long prompt, with the same seeds, in several ways: as one request, as
requests beside each other or far apart in one call, in unequal numbers, and in 8 calls. `computed` is the share of the
rollouts' prompt tokens that vLLM did not take from its cache, `equal` the share of rollouts with the same tokens as in
one request, and `logprob` the largest difference of their log-probabilities.
"""

import argparse
import os
import statistics
import tempfile
import time
from typing import Any

import numpy as np

from budgetalloc.contrib.prices import Seconds

SHORT, LONG = 32, 768  # tokens of a prompt
ANSWERS = (16, 64)
VOCABULARY = 1000
HEADER = "prompt", "answer", "group", "ms", "share", "fitted", "tokens"


def engine(folder: str, caching: bool) -> Any:
    """vLLM with a random model of 4 layers of width 256."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from vllm import LLM

    sizes = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4, "num_attention_heads": 4}
    LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, max_position_embeddings=1024, **sizes)).save_pretrained(folder)
    return LLM(
        model=folder,
        skip_tokenizer_init=True,
        dtype="float32",
        enforce_eager=True,
        enable_prefix_caching=caching,
        max_model_len=1024,
        disable_log_stats=True,
    )


def generate(llm: Any, prompt: int, answer: int, group: int, rollouts: int, rng: np.random.Generator) -> float:
    """Seconds of processor time of so many rollouts, in groups of one size, each group of another prompt."""
    from vllm import SamplingParams

    texts = rng.integers(10, VOCABULARY, size=(rollouts // group, prompt)).tolist()
    requests = [{"prompt_token_ids": text} for text in texts for _ in range(group)]
    sampling = SamplingParams(max_tokens=answer, min_tokens=answer, ignore_eos=True, detokenize=False)
    began = time.process_time()
    outputs = llm.generate(requests, sampling, use_tqdm=False)
    took = time.process_time() - began
    assert all(len(each.outputs[0].token_ids) == answer for each in outputs)
    return took


Sent = list[tuple[list[list[int]], list[dict[str, int]]]]
"""Calls: the prompt of each request, and its `n` and `seed`."""


def ways(prompts: list[list[int]], group: int) -> dict[str, Sent]:
    """The same rollouts of each prompt, sent in several ways. Rollout j has seed j, as sample j of one request does."""
    whole: list[dict[str, int]] = [{"n": group, "seed": 0}] * len(prompts)
    alone = [{"seed": at} for at in range(group)]
    parts = [{"n": 1, "seed": 0}, {"n": 2, "seed": 1}, {"n": group - 3, "seed": 3}]
    return {
        f"one request, n={group}": [(prompts, whole)],
        "requests in a row": [([text for text in prompts for _ in alone], alone * len(prompts))],
        "requests far apart": [(prompts * group, [one for one in alone for _ in prompts])],
        f"n=1, 2 and {group - 3}": [(prompts * 3, [part for part in parts for _ in prompts])],
        f"{group} calls": [(prompts, [one] * len(prompts)) for one in alone],
    }


def send(llm: Any, calls: Sent, answer: int) -> tuple[float, float, dict[tuple[int, ...], tuple[list[int], Any]]]:
    """Seconds of processor time, the share of prompt tokens that were computed, and for each prompt and seed the tokens
    and their log-probabilities."""
    from vllm import SamplingParams

    rollouts, computed, total, took = {}, 0, 0, 0.0
    for prompts, given in calls:
        settings = {"max_tokens": answer, "min_tokens": answer, "ignore_eos": True, "detokenize": False, "logprobs": 0}
        requests, sampling = (
            [{"prompt_token_ids": text} for text in prompts],
            [SamplingParams(**settings, **x) for x in given],
        )
        began = time.process_time()
        outputs = llm.generate(requests, sampling, use_tqdm=False)
        took += time.process_time() - began
        for output, asked in zip(outputs, given, strict=True):
            computed += len(output.prompt_token_ids) - (output.num_cached_tokens or 0)
            for sample in output.outputs:
                total += len(output.prompt_token_ids)
                chosen = [at[token].logprob for at, token in zip(sample.logprobs, sample.token_ids, strict=True)]
                rollouts[*output.prompt_token_ids, asked["seed"] + sample.index] = sample.token_ids, chosen
    return took, computed / total, rollouts


def print_ways(llm: Any, rollouts: int, repeats: int, rng: np.random.Generator, group: int = 8) -> None:
    """The table of these ways: medians, each repetition with prompts of its own."""
    found: dict[str, list[tuple[float, ...]]] = {}
    for _ in range(repeats):
        first = None
        prompts = rng.integers(10, VOCABULARY, size=(rollouts // group, LONG)).tolist()
        for name, calls in ways(prompts, group).items():
            llm.reset_prefix_cache()
            took, computed, sent = send(llm, calls, ANSWERS[0])
            first = first or sent
            assert sent.keys() == first.keys()
            same = [key for key, (tokens, _) in sent.items() if tokens == first[key][0]]
            away = max(float(np.abs(np.subtract(sent[key][1], first[key][1])).max()) for key in same)
            found.setdefault(name, []).append((1000 * took / rollouts, computed, len(same) / len(sent), away))
    print(f"{'sent as':<24}{'ms':>8}{'computed':>10}{'equal':>8}{'logprob':>10}")
    for name, each in found.items():
        print("{:<24}{:>8.2f}{:>10.3f}{:>8.2f}{:>10.1e}".format(name, *np.median(each, axis=0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # in this process, whose time is measured
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TORCHDYNAMO_DISABLE": "1",
    }
    rows, rng = options.rollouts, np.random.default_rng(0)
    cases = [(prompt, answer, group) for prompt in (SHORT, LONG) for answer in ANSWERS for group in (1, 8)]
    print(f"{rows} rollouts; milliseconds of processor time a rollout")
    print(
        f"{'prefix caching':<16}{'prompt':>8}{'answer':>8}{'group':>7}{'ms':>9}{'share':>8}{'fitted':>8}{'tokens':>8}"
    )
    for caching in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            llm = engine(folder, caching)
            generate(llm, SHORT, ANSWERS[0], 1, rows, rng)  # warm
            took: dict[tuple[int, int, int], list[float]] = {case: [] for case in cases}
            seconds = Seconds()
            for _ in range(options.repeats):  # in turns
                for case in cases:
                    prompt, answer, group = case
                    took[case].append(generate(llm, *case, rows, rng))
                    seconds.learn([rows, prompt * rows / group, prompt * rows, answer * rows], took[case][-1])
            print(f"prefix caching {'on' if caching else 'off'}")
            print_ways(llm, rows, options.repeats, rng)
            del llm
        each = {case: statistics.median(times) / rows for case, times in took.items()}
        fitted, tokens = {}, {}
        for prompt, answer, group in cases:
            once_P, rollout_P = seconds(np.array([float(prompt)]), np.array([float(answer)]))
            fitted[prompt, answer, group] = float(once_P[0] / group + rollout_P[0])
            tokens[prompt, answer, group] = prompt / group + answer
        for case in cases:
            shares = [x[case] / max(x.values()) for x in (each, fitted, tokens)]
            name = "on" if caching else "off"
            print(
                "{:<16}{:>8}{:>8}{:>7}{:>9.2f}{:>8.2f}{:>8.2f}{:>8.2f}".format(name, *case, 1000 * each[case], *shares)
            )
        words = ("a rollout", "a prompt's token once a group", "the same in each rollout", "a token of an answer")
        print(
            "  fitted, us: " + "; ".join(f"{word} {1e6 * x:.1f}" for word, x in zip(words, seconds.prices, strict=True))
        )


if __name__ == "__main__":
    main()

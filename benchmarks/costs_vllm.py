"""Do seconds follow the costs of tokens? Groups and single rollouts, long and short prompts, in vLLM.

    PYTHONPATH=. .venv-vllm/bin/python benchmarks/costs_vllm.py [--rollouts 32] [--repeats 3]    # some minutes

A small random Llama generates rollouts in vLLM's own engine, inside this process: each rollout is a request of its own,
as TRL makes them while the callback decides, with answers of a fixed length. Seconds are of processor time, so that
other programs matter little. Every call has prompts that no other had. Then the prices of `cost="seconds"`
(`contrib/prices.py`) are fitted to the calls of each setting, and the last columns show what the fit and
`cost="tokens"` expect, as shares of the dearest row.

The second table sends 8 rollouts of each long prompt in several ways: as one request, as requests in a row or far
apart in one call, in unequal parts, and in 8 calls. `computed` is the share of the rollouts' prompt tokens that were
not cached, by the engine's counters, and `logprob` the largest difference of a token's log-probability between rollouts
with the same tokens.

The last lines give the rollouts of a prompt seeds, in one request and in several.
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
        disable_log_stats=False,
        gpu_memory_utilization=0.2,  # of the machine's memory, on a CPU
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


def ways(prompts: list[list[int]], group: int) -> dict[str, list[tuple[list[list[int]], list[int]]]]:
    """The same rollouts of each prompt, sent in several ways. A call has the prompt of each request, and its `n`."""
    once, parts = [1] * len(prompts), (1, 2, group - 3)
    return {
        f"one request, n={group}": [(prompts, [group] * len(prompts))],
        "requests in a row": [([text for text in prompts for _ in range(group)], once * group)],
        "requests far apart": [(prompts * group, once * group)],
        f"n=1, 2 and {group - 3}": [(prompts * len(parts), [part for part in parts for _ in prompts])],
        f"{group} calls": [(prompts, once)] * group,
    }


def prompt_tokens(llm: Any) -> tuple[int, int]:
    """The prompt tokens of all rollouts so far, and those of them that were cached. The `num_cached_tokens` of an
    output is that of one of its `n` samples."""
    counted = {metric.name: getattr(metric, "value", 0) for metric in llm.get_metrics()}
    return counted["vllm:prompt_tokens"], counted["vllm:prompt_tokens_cached"]


def print_ways(llm: Any, rollouts: int, repeats: int, rng: np.random.Generator, group: int = 8) -> None:
    """Medians, each repetition with prompts of its own."""
    from vllm import SamplingParams

    settings = {"max_tokens": ANSWERS[0], "min_tokens": ANSWERS[0], "ignore_eos": True, "detokenize": False}
    found: dict[str, list[tuple[float, float, float]]] = {}
    for _ in range(repeats):
        first: dict[tuple[int, ...], Any] = {}
        prompts = rng.integers(10, VOCABULARY, size=(rollouts // group, LONG)).tolist()
        for name, calls in ways(prompts, group).items():
            llm.reset_prefix_cache()
            outputs, away, before, began = [], 0.0, prompt_tokens(llm), time.process_time()
            for texts, sizes in calls:
                sampling = [SamplingParams(n=n, top_k=1, logprobs=0, **settings) for n in sizes]
                outputs += llm.generate([{"prompt_token_ids": text} for text in texts], sampling, use_tqdm=False)
            took = time.process_time() - began
            prefilled, cached = (now - then for now, then in zip(prompt_tokens(llm), before, strict=True))
            for each in outputs:
                for one in each.outputs:
                    logprobs = [at[token].logprob for at, token in zip(one.logprobs, one.token_ids, strict=True)]
                    text = tuple(each.prompt_token_ids)
                    away = max(away, float(np.abs(np.subtract(logprobs, first.setdefault(text, logprobs))).max()))
            assert sum(len(each.outputs) for each in outputs) == rollouts
            found.setdefault(name, []).append((1000 * took / rollouts, 1 - cached / prefilled, away))
    print(f"{'sent as':<24}{'ms':>8}{'computed':>10}{'logprob':>10}")
    for name, values in found.items():
        print("{:<24}{:>8.2f}{:>10.3f}{:>10.1e}".format(name, *np.median(values, axis=0)))


def print_seeds(llm: Any, text: list[int], group: int = 8, seed: int = 7) -> None:
    """How many texts there are, and how many as in one request with this seed and `n=group`."""
    from vllm import SamplingParams

    def sent(seeds: list[int], counts: list[int]) -> list[tuple[int, ...]]:
        sampling = [
            SamplingParams(n=n, max_tokens=16, min_tokens=16, ignore_eos=True, detokenize=False, seed=each)
            for each, n in zip(seeds, counts, strict=True)
        ]
        outputs = llm.generate([{"prompt_token_ids": text}] * len(seeds), sampling, use_tqdm=False)
        return [tuple(each.token_ids) for output in outputs for each in output.outputs]

    first, last = seed, seed + group
    given = {
        f"n={group}": ([first], [group]),
        f"n=1, {group} times": ([first] * group, [1] * group),
        f"n=1, seeds {first} to {last - 1}": (list(range(first, last)), [1] * group),
        f"n=1, 2 and {group - 3}": ([first, first + 1, first + 3], [1, 2, group - 3]),
    }
    whole = sent(*given[f"n={group}"])
    for name, how in given.items():
        rollouts = sent(*how)
        same = sum(one == other for one, other in zip(rollouts, whole, strict=True))
        print(f"seed {seed}, {name:<20}{len(set(rollouts)):>4} texts,{same:>3} as those of n={group}")


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
            print_seeds(llm, rng.integers(10, VOCABULARY, size=SHORT).tolist())
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

"""GRPO with transformers alone: the pattern for a trainer that is not in the table of integrations/README.md.

What budgetalloc needs are the lines with `attached`. The rest is any trainer.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from budgetalloc.training.adapter import Attached

Row = tuple[list[int], list[int]]  # the tokens of a prompt, and of its completion


def train(
    model: Any,
    tokenizer: Any,
    texts: dict[str, str],
    reward: Callable[[str, str], float],
    attached: Attached,
    steps: int,
    *,
    prompts: int = 32,
    group: int = 8,
    learning_rate: float = 1e-6,
    **sampling: Any,
) -> Iterator[dict[str, Any]]:
    """Trains the model in place, and yields the counts and the mean reward of each step.

    Args:
        texts: Each prompt by an id that stays the same from run to run.
        reward: Of the id of a prompt and the text of a completion.
        attached: The policy: `Attached(budgetalloc.adaptive(), ["reward"], "group")`.
        prompts, group: Of a trainer without a policy: a step has prompts * group rollouts.
        sampling: For `model.generate`, such as max_new_tokens=256.
    """
    policy, optimizer, pool = attached.policy, torch.optim.AdamW(model.parameters(), learning_rate), list(texts)
    for _ in range(steps):
        number = policy.estimator.step  # goes on after attached.load
        own_ids = np.random.default_rng([policy.seed, number]).choice(pool, prompts, replace=False).tolist()
        counts, ids_R, rows, rewards_R = attached.begin(own_ids, pool, prompts * group, group), [], [], []
        while counts:  # once, or in rounds that use the rewards of the rounds before
            ids_K = [name for name, count in counts.items() for _ in range(count)]
            rows_K = sample(model, tokenizer, [texts[name] for name in ids_K], **sampling)
            answers_K = tokenizer.batch_decode([written for _, written in rows_K], skip_special_tokens=True)
            rewards_K = [reward(name, answer) for name, answer in zip(ids_K, answers_K, strict=True)]
            counts = attached.observe(ids_K, rewards_K, [len(written) for _, written in rows_K])
            ids_R, rows, rewards_R = ids_R + ids_K, rows + rows_K, rewards_R + rewards_K
        advantages_R, kept_R = attached.end()  # here the policy learns
        tokens = sum(len(rows[at][1]) for at in kept_R)
        for at_K in np.array_split(kept_R, -(-len(kept_R) // 16)):  # rows that fit into the memory together
            logp_K = log_probability(model, [rows[at] for at in at_K])
            (-torch.tensor(advantages_R[at_K] / tokens, device=model.device) * logp_K).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield {"step": number, "counts": dict(Counter(ids_R)), "reward": float(np.mean(rewards_R))}


@torch.no_grad()
def sample(model: Any, tokenizer: Any, texts: list[str], **sampling: Any) -> list[Row]:
    """A completion of each text, to the end of the sequence and with it."""
    given = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left").to(model.device)
    whole = model.generate(**given, do_sample=True, top_k=0, **sampling)
    rows = []
    for prompt, mask, row in zip(given["input_ids"], given["attention_mask"], whole.tolist(), strict=True):
        written = row[len(prompt) :]
        if tokenizer.eos_token_id in written:
            written = written[: written.index(tokenizer.eos_token_id) + 1]
        rows.append((prompt[mask.bool()].tolist(), written))
    return rows


def log_probability(model: Any, rows: list[Row]) -> torch.Tensor:
    """Of each whole completion under the model, shape (R,)."""
    tokens = pad_sequence([torch.tensor(prompt + written) for prompt, written in rows], batch_first=True)
    written = pad_sequence([torch.tensor([0] * len(p) + [1] * len(w)) for p, w in rows], batch_first=True)
    tokens, written = tokens.to(model.device), written.to(model.device)
    log_RT = model(input_ids=tokens).logits[:, :-1].log_softmax(-1)  # padding comes last: no token attends to it
    return (log_RT.gather(-1, tokens[:, 1:, None])[..., 0] * written[:, 1:]).sum(1)

"""GRPO with transformers alone, to import: `train` takes your model, prompts and reward function.

budgetalloc needs the lines with `session`. The rest is an ordinary trainer.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from budgetalloc.training.session import Session

Row = tuple[list[int], list[int]]  # the tokens of a prompt, and of its completion


def train(
    model: Any,
    tokenizer: Any,
    texts: dict[str, str],
    reward: Callable[[str, str], float],
    session: Session,
    steps: int,
    *,
    prompts: int = 32,
    group: int = 8,
    learning_rate: float = 1e-6,
    **sampling: Any,
) -> Iterator[dict[str, Any]]:
    """Trains the model in place, and yields the counts and the mean reward of each step.

    Args:
        texts: The prompts by id. An id stays the same from run to run.
        reward: Computes the reward from a prompt id and the text of a completion.
        session: Such as `Session(budgetalloc.adaptive(), ["reward"], pool=list(texts), trainer_scale="group")`.
        prompts, group: A step has prompts * group rollouts.
        sampling: Arguments of `model.generate`, such as max_new_tokens=256.
    """
    policy, optimizer = session.policy, torch.optim.AdamW(model.parameters(), learning_rate)
    for _ in range(steps):
        number = policy.estimator.step  # goes on after session.load
        own_ids = np.random.default_rng([policy.seed, number]).choice(list(texts), prompts, replace=False).tolist()
        session.begin(own_ids, prompts * group, group)
        ids_R, rows, rewards_R = [], [], []
        while ids_K := session.request():  # once, or in rounds that use the rewards of the rounds before
            rows_K = sample(model, tokenizer, [texts[name] for name in ids_K], **sampling)
            answers_K = tokenizer.batch_decode([written for _, written in rows_K], skip_special_tokens=True)
            rewards_K = [reward(name, answer) for name, answer in zip(ids_K, answers_K, strict=True)]
            session.observe(ids_K, rewards_K, [len(written) for _, written in rows_K])
            ids_R, rows, rewards_R = ids_R + ids_K, rows + rows_K, rewards_R + rewards_K
        ended = session.end()  # here the policy learns
        advantages_R, kept_R = ended.advantages_R, ended.kept_R
        tokens = sum(len(rows[at][1]) for at in kept_R)
        for at_K in np.array_split(kept_R, -(-len(kept_R) // 16)):  # rows that fit into the memory together
            logp_K = log_probability(model, [rows[at] for at in at_K])
            (-torch.tensor(advantages_R[at_K] / tokens, device=model.device) * logp_K).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield {"step": number, "counts": dict(Counter(ids_R)), "reward": float(np.mean(rewards_R))}


@torch.no_grad()
def sample(model: Any, tokenizer: Any, texts: list[str], **sampling: Any) -> list[Row]:
    """A completion of each text, up to and including the end-of-sequence token."""
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
    """The log-probability of each completion under the model, shape (R,)."""
    tokens = pad_sequence([torch.tensor(prompt + written) for prompt, written in rows], batch_first=True)
    written = pad_sequence([torch.tensor([0] * len(p) + [1] * len(w)) for p, w in rows], batch_first=True)
    tokens, written = tokens.to(model.device), written.to(model.device)
    log_RT = model(input_ids=tokens).logits[:, :-1].log_softmax(-1)  # padding comes last: no token attends to it
    return (log_RT.gather(-1, tokens[:, 1:, None])[..., 0] * written[:, 1:]).sum(1)

"""What lets a run of 135 million parameters fit one processor core: shared prefills, training of upper layers, and a
vocabulary without the tokens that no question has."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

UPPER = 1 / 3  # of the layers


def share_prefill(model: Any) -> None:
    """Makes `model.generate` read each different prompt of a batch once, and copy its keys and values to the others.

    Rows that differ in tokens or padding are not shared. What is drawn has the same distribution as before, and with
    `do_sample=False` it is the same up to rounding.
    """
    generate: Callable[..., Any] = model.generate

    def shared(self: Any, input_ids: Any = None, attention_mask: Any = None, **options: Any) -> Any:
        both = torch.stack([input_ids, attention_mask], dim=-1)
        first = torch.unique(both, dim=0, return_inverse=True)
        rows, which_R = first[0], first[1]
        if input_ids.shape[1] > 1 and len(rows) < len(input_ids):
            with torch.no_grad():
                real = rows[..., 1]
                cache = self(
                    input_ids=rows[:, :-1, 0],
                    attention_mask=real[:, :-1],
                    position_ids=(real.cumsum(-1) - 1).clamp(min=0)[:, :-1],
                    use_cache=True,
                    logits_to_keep=1,
                ).past_key_values
            cache.batch_select_indices(which_R)
            options["past_key_values"] = cache
        return generate(input_ids=input_ids, attention_mask=attention_mask, **options)

    model.generate = MethodType(shared, model)


def freeze_lower(model: Any, upper: float = UPPER) -> None:
    """Leaves the last `upper` of the layers and the last norm to be trained; embeddings and a tied head stand still."""
    layers = model.model.layers
    trained = set(map(id, model.model.norm.parameters()))
    for layer in layers[len(layers) - max(1, round(upper * len(layers))) :]:
        trained |= set(map(id, layer.parameters()))
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in trained)


def cut_vocabulary(folder: Path, texts: Sequence[str]) -> int:
    """Leaves only the tokens of these texts, single bytes and special tokens in the saved model; returns their number.

    The texts have the same tokens as before, under other numbers. What the model gave to other tokens goes to the rest.
    The tokenizer merges byte pairs, or has no merges. Its special tokens must come first: they keep their numbers.
    """
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    path = folder / "tokenizer.json"
    saved = json.loads(path.read_text())
    vocabulary, merges = saved["model"]["vocab"], saved["model"].get("merges", [])
    parts = {left + right: (left, right) for left, right in merges}
    wanted = {token for text in texts for token in tokenizer.tokenize(text)}
    kept = {token for token in vocabulary if len(token) == 1} | {token["content"] for token in saved["added_tokens"]}
    while wanted:
        token = wanted.pop()
        kept.add(token)
        wanted |= set(parts.get(token, ())) - kept
    names = sorted(kept, key=vocabulary.__getitem__)
    saved["model"]["merges"] = [pair for pair in merges if {*pair, "".join(pair)} <= kept]
    saved["model"]["vocab"] = {token: at for at, token in enumerate(names)}
    old = [vocabulary[token] for token in names]
    rows = [part().weight.detach()[old] for part in (model.get_input_embeddings, model.get_output_embeddings)]
    model.resize_token_embeddings(len(names))
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(rows[0])
        model.get_output_embeddings().weight.copy_(rows[1])  # often the same weights
    model.save_pretrained(folder)
    path.write_text(json.dumps(saved))
    return len(names)

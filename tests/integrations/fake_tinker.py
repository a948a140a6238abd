"""Tinker's service in this process: a tiny Llama that samples, learns by the importance-sampling loss, and is saved.

A sample depends on the weights, the prompt and how many samples of this prompt came before it, and on nothing else: a
resumed run samples as one that never stopped.
"""

import asyncio
import zlib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tinker
import torch
from tiny_llama import tiny_config, tiny_llama
from transformers import LlamaForCausalLM

END = 1


def fresh_model() -> LlamaForCausalLM:
    return tiny_llama(tiny_config(40, max_position_embeddings=32))


class Done:
    """An APIFuture that has its answer."""

    def __init__(self, value: Any) -> None:
        self.value = value

    async def result_async(self, timeout: float | None = None) -> Any:
        return self.value

    def __await__(self) -> Any:
        return self.result_async().__await__()


class Sampling:
    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        self.model, self.before = fresh_model().eval(), Counter[tuple[int, ...]]()
        self.model.load_state_dict(weights)
        self.version = float(sum(x.double().abs().sum() for x in weights.values()))

    async def sample_async(self, prompt: Any, num_samples: int, sampling_params: Any, **_: Any) -> Any:
        await asyncio.sleep(0)
        return self.sample(prompt, num_samples, sampling_params)

    @torch.no_grad()
    def sample(self, prompt: Any, num_samples: int, sampling_params: Any) -> Any:
        given, sequences = tuple(prompt.to_ints()), []
        for _ in range(num_samples):
            self.before[given] += 1
            seed = zlib.crc32(repr((self.version, given, self.before[given])).encode())
            generator, tokens, logprobs = torch.Generator().manual_seed(seed), [], []
            while len(tokens) < sampling_params.max_tokens and tokens[-1:] != [END]:
                logits = self.model(torch.tensor([[*given, *tokens]])).logits[0, -1]
                logp = (logits / sampling_params.temperature).log_softmax(-1)
                tokens.append(int(torch.multinomial(logp.exp(), 1, generator=generator)))
                logprobs.append(float(logp[tokens[-1]]))
            reason = "stop" if tokens[-1] == END else "length"
            more = {"stop_reason": reason, "sequence_id": f"{given}-{self.before[given]}"}
            sequences.append(tinker.SampledSequence(**more, _tokens_list=tokens, _logprobs_list=logprobs))
        return tinker.SampleResponse(sequences=sequences)


class Training:
    def __init__(self, store: Path, saved: dict[str, Any] | None = None) -> None:
        self.store, self.model = store, fresh_model()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.0, weight_decay=0.0)
        if saved is not None:
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])

    async def forward_backward_async(self, data: list[Any], loss_fn: str, loss_fn_config: Any = None) -> Done:
        assert loss_fn == "importance_sampling"
        outputs, total = [], 0.0
        for datum in data:
            given = {name: value.to_torch() for name, value in datum.loss_fn_inputs.items()}
            logits = self.model(torch.tensor([datum.model_input.to_ints()])).logits[0]
            logp = logits.log_softmax(-1).gather(-1, given["target_tokens"].long()[:, None])[:, 0]
            loss = -((logp - given["logprobs"]).exp() * given["advantages"]).sum()
            loss.backward()
            total += loss.item()
            outputs.append({"logprobs": tinker.TensorData.from_torch(logp.detach())})
        return Done(SimpleNamespace(loss_fn_outputs=outputs, metrics={"loss:sum": total}, loss_fn_output_type="x"))

    async def optim_step_async(self, adam: Any) -> Done:
        for group in self.optimizer.param_groups:
            group.update(lr=adam.learning_rate, betas=(adam.beta1, adam.beta2), eps=adam.eps)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return Done(tinker.OptimStepResponse(metrics={}))

    async def save_weights_and_get_sampling_client_async(self, *_: Any, **__: Any) -> Sampling:
        return Sampling(self.model.state_dict())

    async def save_state_async(self, name: str, ttl_seconds: int | None = None, **_: Any) -> Done:
        self.store.mkdir(exist_ok=True)
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, self.store / name)
        return Done(SimpleNamespace(path=f"tinker://run/weights/{name}"))

    save_weights_for_sampler_async = save_state_async

    def create_sampling_client(self, path: str) -> Sampling:
        return Sampling(load(self.store, path)["model"])


def load(store: Path, path: str) -> dict[str, Any]:
    return torch.load(store / path.rsplit("/", 1)[1], weights_only=True)


def service(store: Path, trained: list[Training]) -> type:
    """A class in place of `tinker.ServiceClient`; what it trains is appended to the list."""

    class Service:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        async def create_lora_training_client_async(self, model: str, **_: Any) -> Training:
            trained.append(Training(store))
            return trained[-1]

        async def create_training_client_from_state_with_optimizer_async(self, path: str, **_: Any) -> Training:
            trained.append(Training(store, load(store, path)))
            return trained[-1]

        def create_rest_client(self) -> None:
            raise RuntimeError("no such service here")

    return Service

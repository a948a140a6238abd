"""A random two-layer Llama over digits: training it teaches nothing, but every line of TRL's trainer really runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

torch.set_num_threads(1)  # the model is so small that a second thread only waits

collect_ignore = ["vllm_runs.py", "vllm_server.py"]  # they run where vLLM is

SYMBOLS = [*"0123456789=", "<pad>", "<eos>"]


def make_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {symbol: at for at, symbol in enumerate(SYMBOLS)}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    raw.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", padding_side="left")


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return make_tokenizer()


def fresh_model(seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(SYMBOLS),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=32,
        initializer_range=0.3,  # large, so that completions and gradients do depend on the prompt
        pad_token_id=11,
        eos_token_id=12,
    )
    return LlamaForCausalLM(config)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model on disk: with `beta > 0` TRL loads the reference model from where the model came from."""
    folder = tmp_path_factory.mktemp("model")
    fresh_model().save_pretrained(folder)
    return folder


def low_digit(completions: list[str], **_: Any) -> list[float]:
    """1 where the first symbol is a digit below 5: a coin that a random model passes about half the time."""
    return [float(text[:1].isdigit() and text[0] < "5") for text in completions]


def rows(count: int = 24, **columns: Any) -> Dataset:
    return Dataset.from_list([{"prompt": f"{n:03d}=", "prompt_id": n} for n in range(count)])


class AroundSteps(TrainerCallback):
    """Stands around all that the callback does in a step; add it after the callback.

    Args:
        trainer: Whose steps.
        whole: Called with a step's inputs and what makes its batch of them; returns the batch.
    """

    def __init__(self, trainer: GRPOTrainer, whole: Callable[..., Any]) -> None:
        self.trainer, self.whole = trainer, whole

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        generate = self.trainer._generate_and_score_completions
        self.trainer._generate_and_score_completions = lambda inputs: self.whole(inputs, generate)


@pytest.fixture
def build(tokenizer: PreTrainedTokenizerFast, model_folder: Path, tmp_path: Path) -> Callable[..., GRPOTrainer]:
    """`build(dataset=..., reward=..., **GRPOConfig)` makes a GRPOTrainer with a fresh model."""

    def make(dataset: Any = None, reward: Any = low_digit, eval_dataset: Any = None, **config: Any) -> GRPOTrainer:
        settings: dict[str, Any] = {
            "output_dir": str(tmp_path / "run"),
            "per_device_train_batch_size": 16,
            "num_generations": 4,
            "max_completion_length": 4,
            "learning_rate": 1e-2,
            "max_steps": 4,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": "none",
            "use_cpu": True,
            "bf16": False,
            "disable_tqdm": True,
            "seed": 7,
        }
        return GRPOTrainer(
            model=LlamaForCausalLM.from_pretrained(model_folder),
            reward_funcs=reward,
            args=GRPOConfig(**{**settings, **config}),
            train_dataset=rows() if dataset is None else dataset,
            eval_dataset=eval_dataset,
            processing_class=tokenizer,
        )

    return make


@pytest.fixture
def losses() -> Callable[[GRPOTrainer], list[float]]:
    """The logged losses of a trained trainer, step by step."""
    return lambda trainer: [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

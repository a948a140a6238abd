"""A random two-layer Llama over digits. It learns nothing useful, but every line of TRL's trainer really runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback

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


def fresh_model(seed: int = 0, **more: Any) -> LlamaForCausalLM:
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
        **more,
    )
    return LlamaForCausalLM(config)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model on disk: with `beta > 0` TRL loads the reference model from where the model came from."""
    folder = tmp_path_factory.mktemp("model")
    fresh_model().save_pretrained(folder)
    return folder


def low_digit(completions: list[str], **_: Any) -> list[float]:
    """1 where the first symbol is a digit below 5, which a random model writes about half the time."""
    return [float(text[:1].isdigit() and text[0] < "5") for text in completions]


def rows(count: int = 24) -> Dataset:
    return Dataset.from_list([{"prompt": f"{n:03d}=", "prompt_id": n} for n in range(count)])


def attach(trainer: GRPOTrainer, *args: Any, **options: Any) -> AdaptiveGRPOCallback:
    callback = AdaptiveGRPOCallback(trainer, *args, **options)
    trainer.add_callback(callback)
    return callback


def trained(trainer: GRPOTrainer, *args: Any, resume: int | None = None, **options: Any) -> AdaptiveGRPOCallback:
    """Attaches a callback with these arguments, and trains; `resume` is the step of a checkpoint."""
    callback = attach(trainer, *args, **options)
    trainer.train(resume_from_checkpoint=resume and f"{trainer.args.output_dir}/checkpoint-{resume}")
    return callback


def logged(trainer: GRPOTrainer, key: str) -> list[float]:
    """The values of a metric, in the order in which they were logged."""
    return [entry[key] for entry in trainer.state.log_history if key in entry]


def weights(trainer: GRPOTrainer) -> dict[str, torch.Tensor]:
    """A copy of the model's weights."""
    return {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}


def same_weights(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


class Watched:
    """What reaches a trainer's model: the prompts of each generation in training, and the batches of the loss."""

    def __init__(self, trainer: GRPOTrainer) -> None:
        self.prompts: list[list[Any]] = []
        self.batches: list[dict[str, Any]] = []
        generate, loss = trainer._generate, trainer._compute_loss

        def recording_generate(prompts: list[Any]) -> Any:
            if trainer.model.training:
                self.prompts.append(list(prompts))
            return generate(prompts)

        def recording_loss(model: Any, inputs: dict[str, Any]) -> Any:
            self.batches.append(inputs)
            return loss(model, inputs)

        trainer._generate, trainer._compute_loss = recording_generate, recording_loss


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[Any], dict[str, Any]]]:
    """For each step that a policy begins: the prompts offered, and the policy's state before the step."""
    steps: list[tuple[list[Any], dict[str, Any]]] = []
    begin = ba.Policy.begin

    def recording_begin(policy: ba.Policy, ids: Any, *args: Any, **options: Any) -> Any:
        steps.append((list(ids), policy.state_dict()))
        return begin(policy, ids, *args, **options)

    monkeypatch.setattr(ba.Policy, "begin", recording_begin)
    return steps


class AroundSteps(TrainerCallback):
    """Wraps everything that the callback does in a step. Add it after the callback.

    Args:
        trainer: The trainer.
        whole: Called with a step's inputs and the function that makes the batch from them; returns the batch.
    """

    def __init__(self, trainer: GRPOTrainer, whole: Callable[..., Any]) -> None:
        self.trainer, self.whole = trainer, whole

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        generate = self.trainer._generate_and_score_completions
        self.trainer._generate_and_score_completions = lambda inputs: self.whole(inputs, generate)


SETTINGS: dict[str, Any] = {
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
SAVES = {"save_strategy": "steps", "save_steps": 1}


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Where a test writes its ledger."""
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def build(tokenizer: PreTrainedTokenizerFast, model_folder: Path, tmp_path: Path) -> Callable[..., GRPOTrainer]:
    """`build(dataset=..., reward=..., **GRPOConfig)` makes a GRPOTrainer with the same first weights each time."""

    def make(dataset: Any = None, reward: Any = low_digit, eval_dataset: Any = None, **config: Any) -> GRPOTrainer:
        return GRPOTrainer(
            model=LlamaForCausalLM.from_pretrained(model_folder),
            reward_funcs=reward,
            args=GRPOConfig(**{"output_dir": str(tmp_path / "run"), **SETTINGS, **config}),
            train_dataset=rows() if dataset is None else dataset,
            eval_dataset=eval_dataset,
            processing_class=tokenizer,
        )

    return make

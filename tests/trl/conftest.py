"""Fixtures and helpers of tests with TRL's real trainer and the model of tiny_model.py."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_model import SETTINGS, SYMBOLS, fresh_model, low_digit, make_tokenizer, rows  # noqa: F401, for the tests
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from budgetalloc.trl import AdaptiveGRPOCallback

torch.set_num_threads(1)  # the model is so small that a second thread only waits

collect_ignore = ["vllm_runs.py", "vllm_server.py"]  # they run where vLLM is


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return make_tokenizer()


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model on disk: with `beta > 0` TRL loads the reference model from where the model came from."""
    folder = tmp_path_factory.mktemp("model")
    fresh_model().save_pretrained(folder)
    return folder


def attach(trainer: GRPOTrainer, *args: Any, **options: Any) -> AdaptiveGRPOCallback:
    callback = AdaptiveGRPOCallback(trainer, *args, **{"metrics": "all"} | options)
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


def recorded(trainer: GRPOTrainer) -> list[dict[str, Any]]:
    """A list that gets the batches that the trainer will train on, before TRL shuffles their rows."""
    batches: list[dict[str, Any]] = []

    def recording(inputs: Any, generate: Callable[..., dict[str, Any]]) -> dict[str, Any]:
        batches.append(generate(inputs))
        return batches[-1]

    trainer.add_callback(AroundSteps(trainer, recording))
    return batches


def behind_the_best(trainer: GRPOTrainer, batch: dict[str, Any]) -> torch.Tensor:
    """How far the logit of each token of the completions is below the highest, computed without a cache."""
    inputs = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = trainer.model(inputs, attention_mask=mask, position_ids=positions).logits[:, :-1]
    chosen = logits.gather(2, inputs[:, 1:, None])[..., 0]
    return (logits.max(dim=2).values - chosen)[:, batch["prompt_ids"].size(1) - 1 :]


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

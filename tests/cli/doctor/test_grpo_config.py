"""What the doctor takes for `GRPOConfig` is what the installed TRL does."""

import pytest

from budgetalloc.cli.doctor.grpo_config import DEFAULTS, resolved
from budgetalloc.cli.doctor.literals import UNKNOWN


@pytest.mark.slow
def test_defaults_and_sizes_are_those_of_trl(tmp_path):
    trl = pytest.importorskip("trl")
    plain = {"output_dir": str(tmp_path), "use_cpu": True, "bf16": False, "report_to": "none"}
    config = trl.GRPOConfig(**plain)
    for name, value in DEFAULTS.items():
        if name not in ("steps_per_generation", "generation_batch_size"):
            assert getattr(config, name) == value, name
    for given in (
        {},
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4, "scale_rewards": False},
        {"per_device_train_batch_size": 4, "steps_per_generation": 6, "num_generations": 3},
        {"per_device_train_batch_size": 4, "generation_batch_size": 24, "num_generations": 3},
    ):
        config, (ours, mistakes) = trl.GRPOConfig(**plain, **given), resolved(given, processes=1)
        assert mistakes == []
        for name in ("generation_batch_size", "steps_per_generation", "num_generations", "scale_rewards"):
            assert getattr(config, name) == ours[name], (given, name)
    for given in (
        {"generation_batch_size": 24, "steps_per_generation": 2},
        {"per_device_train_batch_size": 5, "generation_batch_size": 24},
        {"per_device_train_batch_size": 5},
        {"num_generations": 1},
    ):
        with pytest.raises(ValueError, match="generation"):
            trl.GRPOConfig(**plain, **given)
        assert len(resolved(given, processes=1)[1]) == 1


def test_of_sizes_that_are_unknown_nothing_is_computed():
    assert "generation_batch_size" not in resolved({"gradient_accumulation_steps": UNKNOWN}, 1)[0]
    known, _ = resolved({"generation_batch_size": 64, "per_device_train_batch_size": UNKNOWN}, 1)
    assert (known["generation_batch_size"], known["num_generations"]) == (64, 8)
    assert "steps_per_generation" not in known
    assert "generation_batch_size" not in resolved({"num_generations": 3}, 1)[0]  # 8 is not a multiple of it


WRONG = [None, b"1", "8", [1], {"a": 1}, 1j, ..., float("nan"), float("inf"), 10**400, 0, -1, [[1]], ["a"], [None]]


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_value_of_any_type_is_taken_or_is_one_mistake_that_names_it(name):
    for value in WRONG:
        known, mistakes = resolved({name: value}, 1)
        assert len(mistakes) <= 1
        assert all(text.startswith(f"GRPOConfig({name}=") and len(text) < 400 for text in mistakes)
        assert (name in known and known[name] is value) or mistakes or value is None or name == "scale_rewards"


def test_all_mistakes_are_told():
    wrong = {"gradient_accumulation_steps": None, "num_iterations": "1", "save_steps": ..., "reward_weights": b"11"}
    known, mistakes = resolved({**wrong, "scale_rewards": "row", "num_train_epochs": float("nan")}, 1)
    assert [text.partition("=")[0][11:] for text in mistakes] == [
        "gradient_accumulation_steps",
        "num_iterations",
        "num_train_epochs",
        "save_steps",
        "scale_rewards",
        "reward_weights",
    ]
    assert not {*wrong, "scale_rewards", "num_train_epochs", "generation_batch_size"} & set(known)
    assert mistakes[0] == "GRPOConfig(gradient_accumulation_steps=None): use a positive integer."

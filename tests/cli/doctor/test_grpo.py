"""What the doctor takes for `GRPOConfig` is what the installed TRL does."""

import pytest

from budgetalloc.cli.doctor.grpo import DEFAULTS, resolved
from budgetalloc.cli.doctor.literals import UNKNOWN
from budgetalloc.errors import InputError


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
        config, ours = trl.GRPOConfig(**plain, **given), resolved(given, processes=1)
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
        with pytest.raises(InputError):
            resolved(given, processes=1)


def test_of_sizes_that_are_unknown_nothing_is_computed():
    assert "generation_batch_size" not in resolved({"gradient_accumulation_steps": UNKNOWN}, 1)
    assert resolved({"generation_batch_size": 64, "per_device_train_batch_size": UNKNOWN}, 1)["num_generations"] == 8
    with pytest.raises(InputError, match=r"per_device_train_batch_size='8'\): use a positive integer"):
        resolved({"per_device_train_batch_size": "8"}, 1)

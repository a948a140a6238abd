"""What the doctor takes for verl's defaults is what verl's files say."""

from pathlib import Path

import pytest
import yaml

from budgetalloc.cli.doctor.verl_config import DEFAULTS

CONFIG = next(Path(__file__).parents[3].glob(".venv-verl/lib/*/site-packages/verl/trainer/config"), None)


@pytest.mark.skipif(CONFIG is None, reason="verl is in an environment of its own, .venv-verl, which is not here")
def test_defaults_are_those_of_verl():
    whole = yaml.safe_load((CONFIG / "ppo_trainer.yaml").read_text())
    own = whole | {"critic": yaml.safe_load((CONFIG / "critic/critic.yaml").read_text())}
    own["data"] = yaml.safe_load((CONFIG / "data/legacy_data.yaml").read_text())
    own["actor_rollout_ref"] = {"rollout": yaml.safe_load((CONFIG / "rollout/rollout.yaml").read_text())}

    def compare(ours, theirs, path=""):
        for name, value in ours.items():
            assert name in theirs, path + name
            if isinstance(value, dict):
                compare(value, theirs[name], f"{path}{name}.")
            else:
                assert theirs[name] == value, path + name

    compare(DEFAULTS, own)

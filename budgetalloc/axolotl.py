"""The plugin `budgetalloc.axolotl.Plugin` for axolotl, which attaches the policy of the node
`budgetalloc` to the GRPO trainer."""

from collections.abc import Mapping
from typing import Any

from axolotl.integrations.base import BasePlugin
from pydantic import BaseModel

from budgetalloc.contrib.pacing import tuples
from budgetalloc.errors import check_type, refuse
from budgetalloc.training.options import Options, check_node
from budgetalloc.training.policy_like import resolve_policy

_OWN = ("prompt_id", "features", "ledger", "allow_dataset_change")  # not in `Options`


class Node(BaseModel):  # type: ignore[misc]
    """The node in axolotl's schema, which would drop it otherwise. `Plugin` checks the values."""

    budgetalloc: dict[str, Any] | None = None


class Plugin(BasePlugin):  # type: ignore[misc]
    """Attaches `budgetalloc.trl.AdaptiveGRPOCallback` to axolotl's GRPO trainer.

    The node has `policy`, a name or a mapping with `name` and the arguments of the method, and the
    arguments of the callback that YAML can hold.
    """

    def get_input_args(self) -> str:
        """The name of the part of axolotl's schema."""
        return f"{__name__}.Node"

    def register(self, cfg: Mapping[str, Any]) -> None:
        """Raises `InputError` or `UnsupportedError` for wrong settings, before the model is
        loaded."""
        _arguments(cfg)

    def add_callbacks_post_trainer(self, cfg: Mapping[str, Any], trainer: Any) -> list[Any]:
        """The callback, made for this trainer."""
        from budgetalloc.trl import AdaptiveGRPOCallback  # axolotl patches TRL first

        return [AdaptiveGRPOCallback(trainer, **_arguments(cfg))]


def _arguments(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the callback; raises for settings that are not supported."""
    trl = cfg.get("trl") or {}
    refused = {
        f"rl: {cfg.get('rl')}. Use rl: grpo": cfg.get("rl") not in ("grpo", "gdpo"),
        "trl.async_prefetch or trl.use_data_producer: axolotl's producer generates before the "
        "policy has decided, and may replace groups. Leave both out": trl.get("async_prefetch")
        or trl.get("use_data_producer"),
        "context_parallel_size above 1: axolotl then compares num_generations rows in a row, which "
        "are not the policy's groups. Use 1": (cfg.get("context_parallel_size") or 1) > 1,
    }
    refuse(refused, "budgetalloc.axolotl.Plugin does not work with ", ".")
    given = cfg.get("budgetalloc") or {}
    check_type("budgetalloc", given, Mapping, "a mapping, such as {policy: adaptive}")
    check_node(given, _OWN)
    arguments = {key: tuples(value) for key, value in given.items() if value is not None}
    policy = resolve_policy(arguments.pop("policy", "adaptive"), "budgetalloc.policy")
    options = {key: value for key, value in arguments.items() if key not in _OWN}
    Options.resolve(policy.needs, "group", options, trl=False)  # raises
    return {"policy": policy, **arguments}

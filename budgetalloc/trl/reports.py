"""What rollouts report of their costs, read where TRL keeps it."""

from collections.abc import Sequence
from typing import Any

__all__ = ["reports"]


def reports(
    trainer: Any, names: Sequence[str], inputs: Sequence[Any], completions: Sequence[Any]
) -> list[list[Any]]:
    """One list of values for each rollout of this process, in the order of `names`; None where
    nothing is reported.

    A name is looked up in this order, after the reward functions have run:

    1. `log_extra(name, values)`, which TRL passes to reward functions (one value for each rollout);
    2. an attribute of the rollout's environment (`environment_factory`);
    3. a column that `rollout_func` returned, or of the dataset;
    4. for "turns", the number of the model's messages in a conversation.

    Args:
        trainer: The trainer, inside `_calculate_rewards`.
        names: What may be reported.
        inputs, completions: The arguments of `_calculate_rewards`.

    >>> from types import SimpleNamespace
    >>> trainer = SimpleNamespace(environments=[SimpleNamespace(seconds=2.5)], _pending_extra_logs={"calls": [4]})
    >>> chat = [{"role": "assistant"}, {"role": "tool"}, {"role": "assistant"}]
    >>> reports(trainer, ["calls", "seconds", "turns", "price"], [{"price": 7}], [chat])
    [[4, 2.5, 2, 7]]
    """
    logged: dict[str, list[Any]] = getattr(trainer, "_pending_extra_logs", {})
    environments: Sequence[Any] = getattr(trainer, "environments", None) or []
    # there are none, or another version of TRL holds them otherwise
    if len(environments) != len(inputs):
        environments = [None] * len(inputs)

    def value(name: str, at: int) -> Any:
        # several functions may have logged it
        if name in logged and len(logged[name]) == len(inputs):
            return logged[name][at]
        for found in (getattr(environments[at], name, None), inputs[at].get(name)):
            if found is not None:
                return found
        if name == "turns" and isinstance(completions[at], list):
            return sum(message.get("role") == "assistant" for message in completions[at])
        return None

    return [[value(name, at) for name in names] for at in range(len(inputs))]

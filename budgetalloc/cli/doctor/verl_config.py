"""Checks verl's configuration, from a file or from overrides on the command line, without verl."""

from collections.abc import Mapping, Sequence
from typing import Any

from budgetalloc.cli.config.yaml_file import read_text
from budgetalloc.cli.doctor.setup import Diagnosis
from budgetalloc.errors import InputError, shown
from budgetalloc.verl.compatibility import check_config
from budgetalloc.verl.settings import Settings

__all__ = ["DEFAULTS", "SECTIONS", "Node", "examine_verl", "node", "overrides"]

SECTIONS = ("actor_rollout_ref", "algorithm", "budgetalloc", "trainer", "data", "defaults", "hydra", "skip", "critic")
DEFAULTS: dict[str, Any] = {
    "algorithm": {"adv_estimator": "gae", "norm_adv_by_std_in_grpo": True, "use_kl_in_reward": False},
    "trainer": {"v1": {"trainer_mode": "sync", "sampler": {}}},
    "skip": {"rollout_tq": {"enable": False}},
    "critic": {"enable": None},
    "data": {"train_batch_size": 1024},
    "actor_rollout_ref": {"rollout": {"n": 1}},
}
"""The defaults of verl 0.9.1 that the checks read."""
_OTHERS: dict[str, Any] = {"algorithm": {"filter_groups": {}}, "budgetalloc": {}}  # sections that need not be there
_MODES = ("budgetalloc", "budgetalloc_async")


class Node(dict[str, Any]):
    """A mapping whose entries are attributes too, as in verl's configuration."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return self[name]


def node(*mappings: Mapping[str, Any]) -> Node:
    """Merges mappings; entries of later ones replace entries of earlier ones.

    >>> node({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}}).a.c
    3
    """
    made = Node()
    for mapping in mappings:
        for key, value in mapping.items():
            below = made.get(key)
            inner = [below] if isinstance(below, dict) else []
            if inner and not isinstance(value, Mapping | None):
                raise InputError(f"{key}={shown(value)}: this is a section of settings. Use {key}.NAME=value.")
            if value is not None or not inner:  # an empty section changes nothing
                made[key] = node(*inner, value) if isinstance(value, Mapping) else value
    return made


def overrides(words: Sequence[str]) -> Node:
    """Parses overrides such as `+budgetalloc.policy=adaptive` into a configuration.

    >>> overrides(["+budgetalloc.policy=adaptive", "data.train_batch_size=128"])
    {'budgetalloc': {'policy': 'adaptive'}, 'data': {'train_batch_size': 128}}
    """
    made = Node()
    for word in words:
        path, equals, value = word.lstrip("+~").partition("=")
        if not equals or not path or path.count(".") > 50:
            raise InputError(f"{word!r}: give overrides of verl's configuration as name=value.")
        entry: Any = read_text(f"value: {value}", word).values["value"]
        for name in reversed(path.split(".")):
            entry = {name: entry}
        made = node(made, entry)
    return made


def examine_verl(file: str, given: Mapping[str, Any]) -> Diagnosis:
    """Makes the checks of `trainer_mode=budgetalloc` that need no dataset."""
    config = node(DEFAULTS, _OTHERS, given)
    said = Diagnosis(file)
    mode, estimator = config.trainer.v1.trainer_mode, config.algorithm.adv_estimator
    group, prompts = config.actor_rollout_ref.rollout.n, config.data.train_batch_size
    said.facts = [("trainer", f"verl, trainer.v1.trainer_mode={mode}")]
    said.facts.append(("step", f"{prompts} prompts x {group} rollouts (data.train_batch_size, rollout.n)"))
    said.unread = ["the train dataset: its prompts, and whether the bounds can be kept", "verl's own defaults list"]
    if mode not in _MODES:
        said.refused.append(
            f"trainer.v1.trainer_mode={mode}: no policy is attached. Use trainer.v1.trainer_mode=budgetalloc, or "
            "budgetalloc_async."
        )
    ahead = mode == "budgetalloc_async"
    deviation, penalty = config.algorithm.norm_adv_by_std_in_grpo, bool(config.algorithm.use_kl_in_reward)
    with said.collecting():
        settings = Settings.read(config.get("budgetalloc") or {}, deviation=deviation, penalty=penalty, ahead=ahead)
        policy, options = settings.session.policy, settings.session.options
        said.facts.append(("policy", f"{policy}, candidates={options.bounds.candidates!r}"))
        critic = estimator == "gae" if config.critic.enable is None else bool(config.critic.enable)
        check_config(config, policy, options, critic, ahead=ahead)
        if isinstance(prompts, int) and isinstance(group, int):
            options.bounds.budget(options.generate * prompts * group, 1, group)
    return said

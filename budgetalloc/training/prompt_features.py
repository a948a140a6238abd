"""The features of a dataset's prompts that a user asks for by name."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from budgetalloc.beliefs.features import Features
from budgetalloc.beliefs.tracking import TrackingEstimator
from budgetalloc.errors import InputError, UnsupportedError, nearest, shown
from budgetalloc.logs.prompt_texts import prompt_text
from budgetalloc.policies import Policy, adaptive
from budgetalloc.training.prompts import Prompts

__all__ = ["TEXT", "FeatureNames", "described", "features_of"]

FeatureNames = str | Sequence[str] | Features | None
"""A column of the dataset, several, "text" for the prompts' texts, the features themselves, or None."""
TEXT = "text"


def described(policy: Policy, features: Features) -> Policy:
    """The policy with these features: `adaptive(features=)`, or another with a `TrackingEstimator` in place of its own.

    Raises:
        InputError: the policy has features or has learned already.

    >>> import budgetalloc as ba
    >>> described(ba.adaptive(), Features(["a", "b"], [[0], [1]]))
    adaptive(features=Features(2 prompts x 1), seed=0)
    """
    before = policy.estimator
    if isinstance(before, TrackingEstimator) and before.features is not None:
        raise InputError(f"features={features}: {policy} has features already. Give them once.")
    if before.step or len(before):
        raise InputError(
            f"features={features}: {policy} has learned from {before.step} steps without them. Give them to a new "
            "policy, which learns their weights from its first step."
        )
    if policy.name == adaptive(seed=policy.seed).name:
        return adaptive(features=features, seed=policy.seed)
    name = f"{policy.name[:-1]}, features={features})" if policy.name.endswith(")") else policy.name
    return replace(policy, name=name, estimator=TrackingEstimator(features))


def features_of(prompts: Prompts, wanted: str | Sequence[str] | Features) -> Features:
    """The features of all prompts of a dataset.

    Args:
        prompts: The dataset's prompts.
        wanted: As `FeatureNames`. A prompt with several rows has the values of its first row.

    Raises:
        InputError: no such column, or values that are neither numbers, texts nor flags.
        UnsupportedError: the dataset does not list its rows.
    """
    if isinstance(wanted, Features):
        return wanted
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    if not prompts.indexable:
        raise UnsupportedError(
            f"features= need every prompt, and a {type(prompts.dataset).__name__} does not list its rows. Pass a "
            "datasets.Dataset."
        )
    columns = list(prompts.dataset.column_names)
    for name in names:
        if name != TEXT and name not in columns:
            raise InputError(
                f"features={shown(wanted)}: the train dataset has no column {name!r}{nearest(name, columns)} Use "
                f"{TEXT!r} for the prompts' texts, or some of {columns}."
            )
    if not names:
        raise InputError(f"features={shown(wanted)}: name at least one column, or {TEXT!r} for the prompts' texts.")

    def first(column: str) -> list[Any]:
        values = prompts.dataset[column]
        return [values[row] for row in prompts.first_rows_P.tolist()]

    parts = []
    if TEXT in names:
        parts.append(Features.of_texts(prompts.pool, [prompt_text(prompt) for prompt in first(prompts.text)]))
    if others := {name: first(name) for name in names if name != TEXT}:
        parts.append(Features.of_columns(prompts.pool, others))
    return Features.joined(*parts)

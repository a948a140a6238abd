"""The features of a dataset's prompts that a user asks for by name."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from budgetalloc.beliefs.features import Features
from budgetalloc.beliefs.tracking import TrackingEstimator
from budgetalloc.errors import InputError, UnsupportedError, nearest, shown
from budgetalloc.logs.prompt_texts import prompt_text
from budgetalloc.policies import Policy, adaptive
from budgetalloc.policies.methods import PolicyLike, policy_of
from budgetalloc.training.prompts import Prompts

__all__ = ["TEXT", "FeatureNames", "described", "features_of", "tracking_policy"]

FeatureNames = str | Sequence[str] | Features | None
"""A column of the dataset, several, "text" for the prompts' texts, the features themselves, or None."""
TEXT = "text"


def tracking_policy(policy: PolicyLike | None, features: FeatureNames) -> Policy:
    """The policy to attach, whose beliefs can use features if any are given; `adaptive()` if there is no policy.

    Raises:
        InputError: the beliefs of the given policy do not use features, or it has features already.

    >>> tracking_policy(None, None), tracking_policy(None, "text").estimator
    (adaptive(seed=0), TrackingEstimator())
    """
    if policy is None:
        plain = adaptive()
        return plain if features is None else replace(plain, estimator=TrackingEstimator())
    built = policy_of(policy)
    if features is not None:
        if not isinstance(built.estimator, TrackingEstimator):
            raise InputError(
                f"features={shown(features)}: the beliefs of {built} do not use features. Leave out policy=, or use "
                "policies.sampled(estimator=ba.TrackingEstimator())."
            )
        if built.estimator.features is not None:
            raise InputError(f"features={shown(features)}: {built} has features already. Give them once.")
    return built


def described(policy: Policy, features: Features) -> Policy:
    """The policy with these features of its prompts, before it has learned anything.

    >>> described(tracking_policy(None, "text"), Features(["a", "b"], [[0], [1]]))
    adaptive(seed=0, features=Features(2 prompts x 1))
    """
    name = f"{policy.name[:-1]}, features={features})"
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

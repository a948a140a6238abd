"""The features of a dataset's prompts that a user asks for by name."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from budgetalloc.beliefs.features import Features
from budgetalloc.beliefs.ids import Index
from budgetalloc.errors import InputError, UnsupportedError, nearest_name, prefix_errors, short_repr
from budgetalloc.logs.prompt_texts import prompt_text
from budgetalloc.policies import Policy
from budgetalloc.training.prompts import DEFAULT_COLUMN, Prompts
from budgetalloc.training.warm_start import read_counts

logger = logging.getLogger(__name__)
FeatureNames = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Features | None
"""What describes the prompts: a column of the dataset, "text" for the prompts' texts, the records
of an earlier run as a `Path` or as "run:PATH", several of these, the features themselves, or
None."""
TEXT, RUN = "text", "run:"


def check_features(wanted: Any, columns: Sequence[str] | None) -> tuple[list[str], list[Path]]:
    """The columns and the paths that a user names, where `TEXT` counts as a column.

    Args:
        wanted: As `FeatureNames`, but not features.
        columns: The columns of the dataset; None if it is not known, and then no file is looked for
            either.

    Raises:
        InputError: nothing is named, something of another type is, or there is no such column or
            file.

    >>> check_features(["text", "run:old.jsonl"], None)
    (['text'], [PosixPath('old.jsonl')])
    """
    listed = list(wanted) if isinstance(wanted, (list, tuple)) else [wanted]
    if not listed or not all(isinstance(each, (str, os.PathLike)) for each in listed):
        raise InputError(
            "features",
            f"name at least one column of the dataset, {TEXT!r} for the prompts' texts, or the "
            "path of an earlier run's ledger.",
            wanted,
        )
    names, paths = list[str](), list[Path]()
    for each in listed:
        if isinstance(each, os.PathLike) or (each.startswith(RUN) and each not in (columns or ())):
            paths.append(Path(each.removeprefix(RUN) if isinstance(each, str) else each))
        else:
            names.append(each)
    for name in names:
        if columns is not None and name not in (TEXT, *columns):
            raise InputError(
                "features",
                f"the train dataset has no column {name!r}{nearest_name(name, columns)} Use "
                f"{TEXT!r} for the prompts' texts, {RUN + 'PATH'!r} for an earlier run, some of "
                f"{list(columns)}, or budgetalloc.Features.of_vectors(ids, vectors) for hidden "
                "states and other embeddings.",
                wanted,
            )
    for path in paths:
        if columns is not None and not os.path.exists(path):
            raise InputError(
                "features",
                f"there is no file or folder {str(path)!r}. Give an earlier run's ledger.",
                wanted,
            )
    return names, paths


def policy_with_features(
    policy: Policy,
    prompts: Prompts,
    wanted: FeatureNames,
    ledger: str | os.PathLike[str] | None = None,
    quiet: bool = False,
) -> Policy:
    """The policy, with the features that a user asks for, if any.

    Args:
        policy: A policy that has learned nothing yet.
        prompts, wanted, quiet: As in `features_of`.
        ledger: The file to which the run appends its rollouts.

    Raises:
        InputError: as `features_of` and `Policy.with_features`; the ledger is also the earlier run.
        UnsupportedError: as `features_of`.
    """
    if wanted is None:
        return policy
    paths = [] if isinstance(wanted, Features) else check_features(wanted, None)[1]
    if ledger is not None and Path(ledger).resolve() in [path.resolve() for path in paths]:
        raise InputError(
            "features",
            "ledger= is the same file, which changes during the run. Give another ledger=.",
            wanted,
        )
    return policy.with_features(features_of(prompts, wanted, quiet))


def features_of(prompts: Prompts, wanted: FeatureNames, quiet: bool = False) -> Features:
    """The features of all prompts of a dataset.

    Args:
        prompts: The dataset's prompts.
        wanted: As `FeatureNames`. A prompt with several rows has the values of its first row.
        quiet: Whether to suppress the warning about an earlier run with few of the prompts.

    Raises:
        InputError: no such column or file, values that are neither numbers, texts nor flags, or an
            earlier run with none of the prompts.
        UnsupportedError: the dataset does not list its rows.
    """
    if isinstance(wanted, Features):
        return wanted
    if not prompts.indexable:
        raise UnsupportedError(
            f"features= need every prompt, and a {type(prompts.dataset).__name__} does not list "
            "its rows. Pass a datasets.Dataset."
        )
    names, paths = check_features(wanted, list(prompts.readable))
    first, parts = prompts.first_values, []
    if TEXT in names:
        parts.append(
            Features.of_texts(prompts.pool, [prompt_text(prompt) for prompt in first(prompts.text)])
        )
    if others := {name: first(name) for name in names if name != TEXT}:
        parts.append(Features.of_columns(prompts.pool, others))
    parts += [_of_run(prompts, path, quiet) for path in paths]
    return Features.joined(*parts)


def _of_run(prompts: Prompts, path: Path, quiet: bool) -> Features:
    """The success rates of the prompts in an earlier run, as features; prompts of other datasets
    are left out."""
    column = None if prompts.column == DEFAULT_COLUMN else prompts.column
    with prefix_errors(f"features={str(path)!r}: ", "features"):
        ids, successes_P, trials_P = read_counts(path, column)
    at_P = Index(ids).find(prompts.pool)
    rollouts_P = np.append(trials_P, 0.0)[at_P]
    known, total = int((rollouts_P > 0).sum()), len(at_P)
    matched = (
        f"features={str(path)!r}: it has rollouts of {known:,} of the {total:,} prompts of the "
        "train dataset"
    )
    if not known:
        raise InputError(
            f"{matched} (the first is {prompts.pool[0]!r}), and of {len(ids):,} others "
            f"({short_repr(ids[:1])}). Give the "
            "records of a run on this dataset, in which prompts had the same ids (prompt_id=)."
        )
    if known < total / 2 and not quiet:
        logger.warning(
            "%s. The others are believed to have its mean success rate at first.", matched
        )
    rates_P = np.append(successes_P, 0.0)[at_P] / np.where(rollouts_P > 0, rollouts_P, 1.0)
    return Features.of_rates(prompts.pool, rates_P, rollouts_P)

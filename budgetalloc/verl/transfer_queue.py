"""Reads rollouts from verl's TransferQueue, and writes advantages into it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.workers.utils.padding import response_to_nested

from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError
from budgetalloc.verl.batches import Sessions, fields_of, reports
from budgetalloc.verl.settings import PENALTY, REWARD


def tags(partition_id: str) -> dict[str, dict[str, Any]]:
    """The tags of all groups and rows, by their keys."""
    found: dict[str, dict[str, dict[str, Any]]] = tq.kv_list(partition_id=partition_id) or {}
    return found.get(partition_id, {})


def ended(tags_of: Mapping[str, Mapping[str, Any]], uids: Iterable[str]) -> list[str]:
    """Those of these groups whose rollouts have all ended or failed."""
    return [uid for uid in uids if tags_of.get(uid, {}).get("status") in ("finished", "failure")]


def of_groups(
    tags_of: Mapping[str, Mapping[str, Any]], uids: Iterable[str], partition_id: str
) -> Any:
    """The rows of these groups as a batch."""
    wanted, rows = set(uids), {key: tag for key, tag in tags_of.items() if not tag.get("is_prompt")}
    keys = [key for key in rows if key.split("_")[0] in wanted]
    tags = [dict(tags_of[key]) for key in keys]
    return tq.KVBatchMeta(partition_id=partition_id, keys=keys, tags=tags)


def scores(batch: Any, sessions: Sessions, names: Sequence[str]) -> FloatArray:
    """The rewards of each rollout by name, shape (R, F): verl's score, its KL penalty, entries of
    `reward_extra_info`.

    Raises:
        InputError: the reward function returned no number of this name.
    """
    extra = [name for name in names if name not in (REWARD, PENALTY)]
    fields = ["rm_scores", "token_level_rewards"] if PENALTY in names else ["rm_scores"]
    data = _last_rows(batch, sessions, [*fields, "extra_fields"] if extra else fields)
    columns = {REWARD: _sums(data["rm_scores"])}
    if PENALTY in names:
        columns[PENALTY] = _sums(data["token_level_rewards"]) - columns[REWARD]
    told = [getattr(value, "data", value) for value in data["extra_fields"]] if extra else []
    infos = [x.get("reward_extra_info", {}) if isinstance(x, dict) else {} for x in told]
    for name in extra:
        if not all(name in info for info in infos):
            raise InputError(
                f"+budgetalloc.success={name}: the reward function returned no {name!r} next to "
                f"the score, only {sorted(set().union(*infos))}. Return a dictionary with 'score' "
                f"and {name!r}, or use another name."
            )
        columns[name] = np.array([info[name] for info in infos], dtype=np.float64)
    return np.stack([columns[name] for name in names], axis=1)


def costs(batch: Any, sessions: Sessions, names: Sequence[str]) -> dict[str, list[Any]] | None:
    """What each rollout reported of these names (`batches.reports`); None without names. A field
    that verl does not have counts as not reported."""
    rows: list[dict[str, Any]] = [{} for _ in sessions.uids_R]
    for field in fields_of(names):
        try:
            data = _last_rows(batch, sessions, [field])[field]
        except (KeyError, ValueError, RuntimeError):
            continue
        for row, value in zip(rows, data, strict=True):
            row[field] = getattr(value, "data", value)
    return reports(rows, names) if names else None


def column(batch: Any, keys: Sequence[str], name: str) -> list[Any]:
    """The dataset's column of this name for these rows of the batch."""
    data = tq.kv_batch_get(keys=list(keys), partition_id=batch.partition_id, select_fields=[name])
    return [getattr(value, "data", value) for value in data[name]]


def without(batch: Any, sessions: Sessions, kept_R: IntArray) -> Any:
    """The batch with the rows of these rollouts only; the others are deleted."""
    keep_K = np.isin(sessions.session_K, kept_R)
    if gone := [batch.keys[row] for row in np.flatnonzero(~keep_K)]:
        tq.kv_clear(keys=gone, partition_id=batch.partition_id)
    kept = np.flatnonzero(keep_K).tolist()
    return tq.KVBatchMeta(
        partition_id=batch.partition_id,
        keys=[batch.keys[row] for row in kept],
        tags=[batch.tags[row] for row in kept],
        extra_info=batch.extra_info,
    )


def advantages(batch: Any, sessions: Sessions) -> FloatArray:
    """verl's own advantage of each rollout, the mean over the tokens of its last output, shape
    (R,)."""
    data = _last_rows(batch, sessions, ["advantages", "response_mask"])
    tokens = [mask.sum().clamp(min=1) for mask in data["response_mask"].unbind()]
    sums = (values.double().sum() for values in data["advantages"].unbind())
    return np.array([float(total / count) for total, count in zip(sums, tokens, strict=True)])


def put_advantages(batch: Any, sessions: Sessions, advantages_R: FloatArray) -> Any:
    """Writes the advantage of each rollout to the tokens of all its outputs; padding rows get 0."""
    data = tq.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask"]
    )
    mask = data["response_mask"]
    # a padding row has session -1, the last entry
    advantages_K = np.append(advantages_R, 0.0)[sessions.session_K]
    padded = mask.float().to_padded_tensor(0.0)
    values = response_to_nested(
        torch.as_tensor(advantages_K, dtype=torch.float32)[:, None] * padded, mask
    )
    fields = TensorDict({"advantages": values, "returns": values.clone()}, batch_size=len(batch))
    return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)


def _last_rows(batch: Any, sessions: Sessions, fields: list[str]) -> Any:
    """Fields of each rollout's last output."""
    keys = [batch.keys[row] for row in sessions.last_R.tolist()]
    return tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=fields)


def _sums(nested: torch.Tensor) -> FloatArray:
    return np.array([float(row.double().sum()) for row in nested.unbind()])

"""For tinker-cookbook: wrap your `RLDataset` with this file, which must not be called tinker.py."""

import dataclasses
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tinker_cookbook.rl import train
from tinker_cookbook.rl.types import EnvGroupBuilder, RLDataset, Trajectory

import budgetalloc as ba
from budgetalloc.training.session import Session


@dataclasses.dataclass(eq=False)
class AdaptiveDataset(RLDataset):
    """Your `dataset`, in batches of `rollouts` rollouts. The policy's beliefs are saved in `log_path` of the `Config`.

    `name` returns the prompt id of a builder. `success` returns the success of a trajectory, in [0, 1]; by default it
    is the total reward, whose range is learned. `resize` returns the builder with a number of environments.
    """

    dataset: RLDataset
    policy: ba.Policy
    rollouts: int
    log_path: str | Path
    name: Callable[[Any], str]
    success: Callable[[Trajectory], float] | None = None
    resize: Callable[[Any, int], EnvGroupBuilder] = lambda builder, n: dataclasses.replace(builder, num_envs=n)

    def __post_init__(self) -> None:
        self.pool, self.open = dict[str, EnvGroupBuilder](), 0
        names = ["reward", "success"] if self.success else ["reward"]
        self.session = Session(self.policy, names, at_once=True, success=names[-1])
        if not self.session.options.of_groups:
            train.compute_advantages = self.compute_advantages

    def __len__(self) -> int:
        return len(self.dataset)

    def get_batch(self, index: int) -> list[EnvGroupBuilder]:
        if self.open:
            raise ba.UnsupportedError(f"{self.open} groups of the last batch have no rewards: leave out async_config.")
        if index and not self.policy.estimator.step:  # a resumed run
            self.session.load(self.file(index))
        batch = {self.name(builder): builder for builder in self.dataset.get_batch(index)}
        if self.session.options.bounds.candidates != 1 and not self.pool:
            every = (builder for at in range(len(self)) for builder in self.dataset.get_batch(at))
            self.pool = {self.name(builder): builder for builder in every}
            self.session.pool = ba.Pool(self.pool)
        builders, self.index, self.rows = self.pool | batch, index, []
        self.session.begin(list(batch), self.rollouts, self.rollouts // len(batch))
        counts = Counter(self.session.request())
        self.open = len(counts)
        return [_Counted(self.resize(builders[name], count), name, self) for name, count in counts.items()]

    def ended(self) -> None:
        """Called when a group has all its rewards, or failed. After the last group of a batch the policy learns."""
        self.open -= 1
        if not self.open:
            rewards = [(total, self.success(each)) if self.success else (total,) for _, each, total in self.rows]
            lengths = [sum(len(part.ac.tokens) for part in each.transitions) for _, each, _ in self.rows]
            self.session.observe([name for name, _, _ in self.rows], rewards, lengths)
            advantages_R = self.session.end().advantages_R
            self.advantages = {id(row[1]): float(a) for row, a in zip(self.rows, advantages_R, strict=True)}
            self.session.save(self.file(self.index + 1))

    def compute_advantages(self, groups: Any) -> list[torch.Tensor]:
        return [torch.tensor([self.advantages[id(each)] for each in group.trajectories_G]) for group in groups]

    def file(self, index: int) -> Path:
        return Path(self.log_path, f"budgetalloc_{index:06d}.npz")


class _Counted(EnvGroupBuilder):
    """A builder that passes its rewards to the dataset."""

    def __init__(self, builder: EnvGroupBuilder, name: str, dataset: AdaptiveDataset) -> None:
        self.builder, self.name, self.dataset, self.logging_tags = builder, name, dataset, builder.logging_tags

    async def make_envs(self) -> Any:
        return await self.builder.make_envs()

    async def compute_group_rewards(self, trajectory_group: list[Trajectory], env_group: Any) -> Any:
        final = await self.builder.compute_group_rewards(trajectory_group, env_group)
        for each, (reward, _) in zip(trajectory_group, final, strict=True):
            self.dataset.rows.append((self.name, each, sum(part.reward for part in each.transitions) + reward))
        return final

    async def cleanup(self) -> None:  # called at the end of every group, also of a failed one
        await self.builder.cleanup()
        self.dataset.ended()

    def __reduce__(self) -> Any:
        raise ba.UnsupportedError("rollout_executor= takes the rewards to another process: leave it out.")

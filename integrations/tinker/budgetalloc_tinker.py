"""A policy decides how many rollouts each prompt of a tinker-cookbook `RLDataset` gets."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tinker_cookbook.rl import train
from tinker_cookbook.rl.types import EnvGroupBuilder, RLDataset, Trajectory, TrajectoryGroup

import budgetalloc as ba
from budgetalloc.policies.advantages import batch_advantages
from budgetalloc.policies.bounds import Bounds


class AdaptiveDataset(RLDataset):
    """Your dataset, whose groups get sizes by a policy. Beliefs are in `log_path`, and a resumed run finds them there.

    Args:
        dataset: Yours.
        policy: One that decides once a step. If it needs a baseline of its own, it replaces `train.compute_advantages`.
        rollouts: Rollouts of a batch.
        log_path: That of the training's `Config`.
        name: The id of a builder's prompt, the same from run to run.
        success: Of a trajectory, in [0, 1]; by default its total reward, which must then lie in [0, 1].
        resize: The builder with so many environments.
    """

    def __init__(
        self,
        dataset: RLDataset,
        policy: ba.Policy,
        rollouts: int,
        log_path: str | Path,
        name: Callable[[Any], str],
        success: Callable[[Trajectory], float] | None = None,
        resize: Callable[[Any, int], EnvGroupBuilder] = lambda builder, n: dataclasses.replace(builder, num_envs=n),
    ) -> None:
        self.dataset, self.policy, self.rollouts, self.folder = dataset, policy, rollouts, Path(log_path)
        self.name, self.success, self.resize = name, success, resize
        self.bounds, self.open, self.rows = Bounds.resolve(policy.needs), 0, list[tuple[str, Trajectory, float]]()
        self.pool: dict[str, EnvGroupBuilder] = {}
        self.own_baseline = policy.needs.baseline not in (None, "group")
        if self.own_baseline:
            train.compute_advantages = self.compute_advantages

    def __len__(self) -> int:
        return len(self.dataset)

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        if self.open:
            raise ba.UnsupportedError(
                f"get_batch({index}) while {self.open} groups of the batch before are not rewarded: leave out "
                "async_config. A policy learns from each batch before the next."
            )
        if index and not self.policy.estimator.step:  # a resumed run
            self.policy.load_state_dict(ba.load_state(self.file(index))[0])
        batch = {self.name(builder): builder for builder in self.dataset.get_batch(index)}
        if self.bounds.candidates != 1 and not self.pool:
            every = (self.dataset.get_batch(at) for at in range(len(self.dataset)))
            self.pool = {self.name(builder): builder for builders in every for builder in builders}
        ids_P = self.bounds.offer(list(batch), self.pool, self.policy.seed, index)
        budget = self.bounds.budget(self.rollouts, len(ids_P), self.rollouts // len(batch))
        self.step = self.policy.begin(ids_P, budget)
        if self.step.in_rounds():
            raise ba.UnsupportedError(f"{self.policy} decides in rounds, and the cookbook generates a batch at once.")
        counts = {name: count for name, count in zip(ids_P, self.step.request().tolist(), strict=True) if count}
        self.index, self.open, self.rows = index, len(counts), []
        builders = self.pool | batch
        return [_Counted(self.resize(builders[name], count), name, self) for name, count in counts.items()]

    def ended(self) -> None:
        """A group has all its rewards, or failed. With the last one the policy learns, before the checkpoint."""
        self.open -= 1
        if self.open:
            return
        ids_R, rewards_R = [row[0] for row in self.rows], [row[2] for row in self.rows]
        success_R = None if self.success is None else [self.success(row[1]) for row in self.rows]
        told_R = rewards_R if success_R is None else success_R
        self.step.observe(ids_R, rewards_R, success_R)
        if self.own_baseline and self.rows:
            advantages_R = batch_advantages(
                rewards_R,
                ids_R,
                self.policy.needs.baseline,
                self.policy.needs.scale or "none",
                self.policy.needs.weight,
                success_R=success_R,
                belief_R=self.step.baseline_belief(ids_R, told_R),
                expected_R=self.step.expected_success(ids_R, told_R),
                lengths_R=[sum(len(each.ac.tokens) for each in row[1].transitions) for row in self.rows],
            )
            self.advantages = {id(row[1]): float(a) for row, a in zip(self.rows, advantages_R, strict=True)}
        self.step.end()
        ba.save_state(self.file(self.index + 1), self.policy.state_dict())

    def compute_advantages(self, groups: list[TrajectoryGroup]) -> list[torch.Tensor]:
        return [torch.tensor([self.advantages[id(each)] for each in group.trajectories_G]) for group in groups]

    def file(self, index: int) -> Path:
        return self.folder / f"budgetalloc_{index:06d}.npz"


class _Counted(EnvGroupBuilder):
    """A builder whose rewards are seen."""

    def __init__(self, builder: EnvGroupBuilder, name: str, dataset: AdaptiveDataset) -> None:
        self.builder, self.name, self.dataset = builder, name, dataset

    async def make_envs(self) -> Any:
        return await self.builder.make_envs()

    async def compute_group_rewards(self, trajectory_group: list[Trajectory], env_group: Any) -> Any:
        final = await self.builder.compute_group_rewards(trajectory_group, env_group)
        for trajectory, (reward, _) in zip(trajectory_group, final, strict=True):
            total = sum(transition.reward for transition in trajectory.transitions) + reward
            self.dataset.rows.append((self.name, trajectory, total))
        return final

    async def cleanup(self) -> None:  # called at the end of every group, of one that failed too
        await self.builder.cleanup()
        self.dataset.ended()

    def logging_tags(self) -> list[str]:
        return self.builder.logging_tags()

    def __reduce__(self) -> Any:
        raise ba.UnsupportedError("rollout_executor= takes the rewards to another process: leave it out.")

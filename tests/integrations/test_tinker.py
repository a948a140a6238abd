"""AdaptiveDataset of integrations/tinker in tinker-cookbook's own `train.main`, with a service of this process.

Runs in the environment that `make trainers` makes, and skips elsewhere.
"""

import asyncio
import dataclasses
import json
import pickle
from collections import Counter

import pytest

pytest.importorskip("tinker_cookbook")
pytestmark = pytest.mark.slow

import chz  # noqa: E402
import fake_tinker  # noqa: E402
import numpy as np  # noqa: E402
import tinker  # noqa: E402
import torch  # noqa: E402
from budgetalloc_tinker import AdaptiveDataset  # noqa: E402
from tinker_cookbook import tokenizer_utils  # noqa: E402
from tinker_cookbook.rl import train  # noqa: E402
from tinker_cookbook.rl.types import Env, EnvGroupBuilder, RLDataset, RLDatasetBuilder, StepResult  # noqa: E402

import budgetalloc as ba  # noqa: E402
from budgetalloc import policies  # noqa: E402
from budgetalloc.policies.group_advantages import group_advantages  # noqa: E402

SHARES = [0, 1, 4, 12, 20, 30, 36, 39]
"""A rollout of prompt i passes if its first token is below SHARES[i], of 40."""


class OneToken(Env):
    def __init__(self, number, broken, penalty):
        self.number, self.broken, self.penalty = number, broken, penalty

    async def initial_observation(self):
        return tinker.ModelInput.from_ints([2 + self.number, 3, 5]), [fake_tinker.END]

    async def step(self, action, *, extra=None):
        if self.broken:
            raise RuntimeError("the environment is down")
        return StepResult(
            reward=float(action[0] < SHARES[self.number]) - self.penalty, episode_done=True,
            next_observation=tinker.ModelInput.from_ints([]), next_stop_condition=[],
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Builder(EnvGroupBuilder):
    number: int
    num_envs: int = 4
    broken: bool = False
    penalty: float = 0.0

    async def make_envs(self):
        return [OneToken(self.number, self.broken, self.penalty) for _ in range(self.num_envs)]


class Users(RLDataset):
    """Two batches of four prompts each, in turn."""

    def __init__(self, batches, broken=(), penalty=0.0):
        self.batches, self.broken, self.penalty = batches, broken, penalty

    def __len__(self):
        return self.batches

    def get_batch(self, index):
        numbers = [4 * (index % 2) + k for k in range(4)]
        return [Builder(at, broken=at in self.broken, penalty=self.penalty) for at in numbers]


@chz.chz
class Built(RLDatasetBuilder):
    dataset: object

    async def __call__(self):
        return self.dataset, None


class Tokens:
    def decode(self, tokens, **_):
        return " ".join(map(str, tokens))

    def encode(self, text, **_):
        return []


@pytest.fixture
def run(tmp_path, monkeypatch):
    """`run(policy, batches)` trains; returns the policy, the counts of each batch, and the weights."""
    monkeypatch.setattr(train, "compute_advantages", train.compute_advantages)  # the dataset may replace it
    monkeypatch.setenv("TINKER_API_KEY", "tml-dummy")
    monkeypatch.setitem(tokenizer_utils._CUSTOM_TOKENIZER_REGISTRY, "tiny", Tokens)

    def make(policy, batches=4, log="run", broken=(), penalty=0.0, success=None, **options):
        trained, counts = [], []
        monkeypatch.setattr(tinker, "ServiceClient", fake_tinker.service(tmp_path / f"{log}-store", trained))
        dataset = Users(batches, broken, penalty)
        if policy is not None:
            dataset = AdaptiveDataset(
                dataset, policy, 16, tmp_path / log, lambda builder: f"q{builder.number}", success
            )
            original = dataset.get_batch

            def get_batch(index):
                builders = original(index)
                counts.append({each.name: each.builder.num_envs for each in builders})
                return builders

            dataset.get_batch = get_batch
        config = train.Config(
            learning_rate=1e-2, dataset_builder=Built(dataset=dataset), model_name="tiny", recipe_name="budgetalloc",
            max_tokens=2, log_path=str(tmp_path / log), eval_every=0, save_every=2, lora_rank=4,
            base_url="http://127.0.0.1:1", num_groups_to_log=0, **options,
        )  # fmt: skip
        asyncio.run(train.main(config))
        return policy, counts, trained[-1].model.state_dict()

    return make


def equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def test_uniform_trains_as_the_cookbook_alone(run):
    _, _, alone = run(None, log="alone")
    _, counts, weights = run(ba.uniform())
    assert counts == [{f"q{4 * (at % 2) + k}": 4 for k in range(4)} for at in range(4)]
    assert equal(alone, weights)
    assert not equal(alone, fake_tinker.fresh_model().state_dict())


def test_a_resumed_run_is_one_that_never_stopped(run):
    policy, counts, weights = run(ba.thompson(seed=0), 6, log="whole")
    assert all(sum(each.values()) == 16 for each in counts)
    assert len({tuple(sorted(Counter(each.values()).items())) for each in counts}) > 1
    _, first, _ = run(ba.thompson(seed=0), 4, log="stopped")
    resumed, rest, again = run(ba.thompson(seed=0), 6, log="stopped")
    assert first + rest == counts
    assert equal(again, weights)
    assert ba.testing.same_state(resumed.state_dict(), policy.state_dict())


def test_the_beliefs_of_a_checkpoint_are_written_before_it(run, tmp_path, monkeypatch):
    """Killed at a checkpoint's save, the run resumes from a checkpoint whose beliefs are there."""
    seen, original = [], fake_tinker.Training.save_state_async

    async def save(self, name, **options):
        seen.append((name, sorted(file.name for file in (tmp_path / "run").glob("budgetalloc_*"))))
        return await original(self, name, **options)

    monkeypatch.setattr(fake_tinker.Training, "save_state_async", save)
    run(ba.knapsack())
    batches = [json.loads(line)["batch"] for line in (tmp_path / "run" / "checkpoints.jsonl").open()]
    assert batches[-1] == 4
    newest = {int(name): files[-1] for name, files in seen if name.isdigit() and int(name)}
    assert newest == {2: "budgetalloc_000002.npz", 4: "budgetalloc_000004.npz"}


def test_a_policy_with_a_baseline_of_its_own_gives_the_cores_advantages(run, monkeypatch):
    seen = []
    original = AdaptiveDataset.compute_advantages

    def compute(self, groups):
        advantages = original(self, groups)
        seen.append((self, groups, advantages))
        return advantages

    monkeypatch.setattr(AdaptiveDataset, "compute_advantages", compute)
    _, counts, weights = run(policies.sampled(seed=0), 3)
    assert all(sum(each.values()) == 16 for each in counts)
    assert any(1 in each.values() for each in counts)
    assert not equal(weights, fake_tinker.fresh_model().state_dict())
    dataset, groups, advantages = next(each for each in reversed(seen) if len(each[1]) == len(counts[-1]))
    assert sum(map(len, advantages)) == 16
    fresh = policies.sampled(seed=0)
    fresh.load_state_dict(ba.load_state(dataset.file(2))[0])  # beliefs before the last batch
    ids_R = [row[0] for row in dataset.rows]
    rewards_R = [row[2] for row in dataset.rows]
    step = fresh.begin([f"q{at}" for at in range(8)], dataset.session.options.bounds.budget(16, 8, 4))
    belief_R = step.baseline_belief(ids_R, rewards_R)
    expected_R = group_advantages(rewards_R, ids_R, "posterior", fresh.needs.scale, belief_R=belief_R)
    expected = {id(row[1]): a for row, a in zip(dataset.rows, expected_R, strict=True)}
    for group, mine in zip(groups, advantages, strict=True):
        torch.testing.assert_close(mine.tolist(), [expected[id(each)] for each in group.trajectories_G])


def test_beliefs_are_about_success_where_rewards_are_on_another_scale(run):
    plain, _, _ = run(ba.uniform(), 1, log="plain")
    passed = {"penalty": 0.1, "success": lambda trajectory: float(trajectory.transitions[-1].reward > 0)}
    shifted, _, _ = run(ba.uniform(), 1, log="shifted", **passed)
    ids = [f"q{at}" for at in range(4)]
    assert shifted.belief(ids).mean.tolist() == pytest.approx(plain.belief(ids).mean.tolist())
    ranged, _, _ = run(ba.uniform(), 1, log="ranged", penalty=0.1)  # without success=, the range is learned
    assert np.argsort(ranged.belief(ids).mean).tolist() == np.argsort(plain.belief(ids).mean).tolist()
    assert ranged.estimator.step == 1


def test_a_group_that_fails_is_not_observed(run):
    policy, counts, _ = run(ba.uniform(), 4, broken=(1,), rollout_error_tolerance=True)
    assert len(counts) == 4
    assert policy.cold(["q0", "q1"]).tolist() == [False, True]
    assert policy.estimator.step == 4


def test_what_cannot_be_served_is_refused(run, tmp_path):
    with pytest.raises(ba.UnsupportedError, match="decides in rounds"):
        run(ba.methods.ar3po(group=4))
    with pytest.raises(ba.UnsupportedError, match="generates more rollouts than it trains on"):
        run(ba.methods.pods(), log="pods")
    dataset = AdaptiveDataset(Users(2), ba.uniform(), 16, tmp_path, lambda builder: f"q{builder.number}")
    first = dataset.get_batch(0)
    with pytest.raises(ba.UnsupportedError, match="4 groups of the last batch have no rewards: leave out async"):
        dataset.get_batch(1)
    with pytest.raises(ba.UnsupportedError, match="rollout_executor"):
        pickle.dumps(first[0])

"""Advantages: TRL's numbers for equal groups, the gradient they stand for, and a whole step in a run."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_step import advantages_of_step, rollouts_of

from budgetalloc import Beta, InputError, group_advantages
from budgetalloc.beliefs.expected_reward import Sums
from budgetalloc.policies.advantages import batch_advantages
from budgetalloc.policies.group_advantages import whitened
from budgetalloc.policies.rollouts import Rollouts, sums_of

LIMITS = settings(max_examples=150, deadline=None)
nan = float("nan")


SCORES = st.sampled_from([0.0, 1.0, 0.25])


@st.composite
def rollouts(draw, reward=SCORES):
    """Ids and rewards of groups of any sizes, rows in any order."""
    ids = draw(st.lists(st.sampled_from(["a", "b", 1, "1"]), min_size=1, max_size=14))
    return ids, draw(st.lists(reward, min_size=len(ids), max_size=len(ids)))


def beliefs(ids):
    """A belief for each prompt, one per rollout."""
    alpha = {"a": 0.5, "b": 3.0, 1: 1.0, "1": 7.5}
    return Beta([alpha[x] for x in ids], [2.0 if x == "b" else 0.5 for x in ids])


# --- against TRL ---


def trl_advantages(rewards_R, size, scale):
    """The lines of `GRPOTrainer._generate_and_score_completions` (TRL 1.16) for one reward function."""
    torch = pytest.importorskip("torch")
    nanstd = pytest.importorskip("trl.trainer.utils").nanstd
    rewards = torch.tensor(rewards_R, dtype=torch.float32)
    mean = torch.nanmean(rewards.view(-1, size), dim=1).repeat_interleave(size, dim=0)
    if scale in ("group", "none"):
        std = nanstd(rewards.view(-1, size), dim=1).repeat_interleave(size, dim=0)
    else:
        std = nanstd(rewards).expand_as(rewards)
    advantages = rewards - mean
    if scale != "none":
        advantages = advantages / (std + 1e-4)
    return torch.nan_to_num(advantages, nan=0.0).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("missing", [0.0, 0.2, 0.8])
def test_equal_groups_give_trls_numbers(scale, missing):
    rng = np.random.default_rng(0)
    for size in (2, 3, 8):
        # Multiples of 1/4: at a spread of 0, TRL divides the rounding of other numbers by 1e-4.
        rewards = rng.integers(0, 5, 16 * size) / 4
        rewards[:size] = 1.0
        rewards[rng.random(rewards.size) < missing] = nan
        ids = np.repeat(np.arange(16), size)
        expected = trl_advantages(rewards, size, scale)
        assert group_advantages(rewards, ids, scale=scale) == pytest.approx(expected, rel=2e-6, abs=2e-6)


# --- properties ---


BASELINES = ["group", "loo", "posterior", "batch"]
SCALES = ["group", "batch", "rms", "whiten", "whiten_tokens", "none"]
OPTIONS = [
    each
    for each in itertools.product(BASELINES, SCALES, ["rollout", "prompt"])
    if each[:2] != ("batch", "group")  # a group of one has no deviation
]


def lengths(ids):
    """The tokens of each rollout, by its prompt."""
    return [{"a": 3, "b": 7, 1: 40, "1": 1}[x] for x in ids]


def advantages_of(ids, rewards, baseline, scale, weight):
    belief_R = beliefs(ids) if baseline == "posterior" else None
    lengths_R = lengths(ids) if scale == "whiten_tokens" else None
    return group_advantages(rewards, ids, baseline, scale, weight, belief_R=belief_R, lengths_R=lengths_R)


@pytest.mark.parametrize(("baseline", "scale", "weight"), OPTIONS)
@given(data=rollouts(st.sampled_from([0.0, 1.0, 0.25, nan])), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_permuting_rows_permutes_the_answer(baseline, scale, weight, data, seed):
    ids, rewards = data
    order = np.random.default_rng(seed).permutation(len(ids))
    whole = advantages_of(ids, rewards, baseline, scale, weight)
    turned = advantages_of([ids[i] for i in order], [rewards[i] for i in order], baseline, scale, weight)
    assert turned == pytest.approx(whole[order], abs=1e-9)


@pytest.mark.parametrize(("baseline", "scale", "weight"), OPTIONS)
@given(data=rollouts(st.sampled_from([0.0, 1.0, 0.25, nan])))
@settings(max_examples=30, deadline=None)
def test_rows_without_a_reward_are_as_if_absent(baseline, scale, weight, data):
    ids, rewards = data
    got = advantages_of(ids, [None if r != r else r for r in rewards], baseline, scale, weight)
    scored = [r == r for r in rewards]
    assert (got[np.logical_not(scored)] == 0).all()
    if any(scored):
        kept = [x for x, ok in zip(ids, scored, strict=True) if ok]
        alone = advantages_of(kept, [r for r in rewards if r == r], baseline, scale, weight)
        if weight == "prompt":  # which keeps the mean over all rows, also those without a reward
            alone = alone * len(ids) / len(kept)
        assert got[scored] == pytest.approx(alone, abs=1e-9)


@given(rollouts())
@LIMITS
def test_loo_is_the_group_mean_stretched(data):
    """r - mean of the others = n / (n - 1) * (r - mean of the group)."""
    ids, rewards = data
    n_R = np.array([ids.count(x) for x in ids])
    group = group_advantages(rewards, ids, "group", "none")
    stretched = np.where(n_R > 1, group * n_R / np.maximum(n_R - 1, 1), 0)
    assert group_advantages(rewards, ids, "loo", "none") == pytest.approx(stretched, abs=1e-12)


@given(rollouts())
@LIMITS
def test_posterior_is_its_formula(data):
    ids, rewards = data
    belief = beliefs(ids)
    for row, x in enumerate(ids):
        others = [r for at, (i, r) in enumerate(zip(ids, rewards, strict=True)) if i == x and at != row]
        a, b = belief.alpha_P[row], belief.beta_P[row]
        base = (a + sum(others)) / (a + b + len(others))
        got = group_advantages(rewards, ids, "posterior", "none", belief_R=belief)
        assert got[row] == pytest.approx(rewards[row] - base)


@pytest.mark.parametrize("scale", ["none", "group"])
@given(data=rollouts(), own=st.floats(0, 1))
@settings(max_examples=50, deadline=None)
def test_the_posterior_baseline_and_scale_are_free_of_the_own_reward(scale, data, own):
    """The advantage moves with the own reward along one straight line: its offset and slope do not depend on it."""
    ids, rewards = data

    def first(r):
        return group_advantages([r, *rewards[1:]], ids, "posterior", scale, belief_R=beliefs(ids))[0]

    assert first(own) == pytest.approx(first(0.0) + own * (first(1.0) - first(0.0)), abs=1e-9)
    if scale == "none":
        assert first(1.0) - first(0.0) == pytest.approx(1)


@given(data=rollouts(st.sampled_from([0.0, 1.0, 0.25, nan])))
@LIMITS
def test_whitening_by_tokens_is_whitening_of_every_token_by_itself(data):
    """Each rollout as many times as it has tokens, by brute force."""
    ids, rewards = data
    raw, count = group_advantages(rewards, ids, "batch", "none"), np.array(lengths(ids))
    got = group_advantages(rewards, ids, "batch", "whiten_tokens", lengths_R=count)
    scored = ~np.isnan(rewards)
    tokens = np.repeat(raw[scored], count[scored])
    if len(tokens) > 1:
        expected = (raw - tokens.mean()) / (np.std(tokens, ddof=1) + 1e-4)
        assert got[scored] == pytest.approx(expected[scored], abs=1e-6)
    assert (got[~scored] == 0).all()


# --- the gradient, by exact enumeration ---

REWARDS = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])  # of each prompt's three actions
# Logits of (prompt, action) from four parameters that the two prompts share.
FEATURES = np.random.default_rng(11).normal(size=(2, 3, 4))
THETA = np.array([0.3, -0.5, 0.2, 0.4])
COUNTS = [(2, 2), (3, 2), (2, 5), (4, 3)]


def policy():
    """Action probabilities (2, 3), and the gradient of their logarithms (2, 3, 4)."""
    logits = FEATURES @ THETA
    probability = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return probability, FEATURES - np.einsum("pa,pak->pk", probability, FEATURES)[:, None, :]


def true_gradient():
    """The mean over prompts of the gradient of the expected reward."""
    probability, score = policy()
    return np.einsum("pa,pa,pak->k", probability, REWARDS, score) / 2


def expected_gradient(counts, baseline, weight):
    """E[mean over rollouts of advantage * grad log pi], over every outcome of every rollout."""
    probability, score = policy()
    ids = np.repeat([0, 1], counts)
    belief_R = Beta(np.array([0.7, 4.0])[ids], np.array([2.0, 1.5])[ids]) if baseline == "posterior" else None
    expected = np.zeros(4)
    for actions in itertools.product(range(3), repeat=len(ids)):
        chosen = list(actions)
        advantages = group_advantages(REWARDS[ids, chosen], ids, baseline, "none", weight, belief_R=belief_R)
        expected += probability[ids, chosen].prod() * (advantages @ score[ids, chosen]) / len(ids)
    return expected


@pytest.mark.parametrize(
    ("baseline", "counts"),
    [*itertools.product(["loo", "posterior"], COUNTS), *itertools.product(["posterior"], [(1, 1), (1, 4), (3, 1)])],
)
def test_weight_prompt_is_unbiased_whatever_the_counts(baseline, counts):
    """The posterior baseline serves groups of one too."""
    assert expected_gradient(counts, baseline, "prompt") == pytest.approx(true_gradient(), abs=1e-12)


def test_weight_rollout_depends_on_the_counts():
    uneven = expected_gradient((2, 5), "loo", "rollout")
    assert abs(uneven - true_gradient()).max() > 0.01
    assert expected_gradient((3, 3), "loo", "rollout") == pytest.approx(true_gradient(), abs=1e-12)


@pytest.mark.parametrize("n", [2, 3])
def test_the_group_baseline_shrinks_the_gradient(n):
    assert expected_gradient((n, n), "group", "prompt") == pytest.approx(true_gradient() * (n - 1) / n, abs=1e-12)


# --- what is refused ---


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: group_advantages([1, 0], ["a"]), "rewards_R has shape (2,) for 1 ids"),
        (lambda: group_advantages(["x"], ["a"]), "rewards_R=['x']"),
        (lambda: group_advantages([float("inf")], ["a"]), "rewards_R[0] = inf"),
        (lambda: group_advantages([1], [1.5]), "ids_R[0] is 1.5"),
        (
            lambda: group_advantages([1], ["a"], baseline="mean"),
            "baseline='mean': use one of ('group', 'loo', 'batch', 'posterior', 'policy') or",
        ),
        (lambda: group_advantages([1], ["a"], scale="std"), "scale='std'"),
        (lambda: group_advantages([1], ["a"], weight="token"), "weight='token'"),
        (lambda: group_advantages([1], ["a"], scale="whiten_tokens"), "pass lengths_R"),
        (lambda: group_advantages([1], ["a"], scale="whiten_tokens", lengths_R=[1, 2]), "lengths_R=[1, 2]"),
        (lambda: group_advantages([1], ["a"], scale="whiten_tokens", lengths_R=[-1]), "lengths_R=[-1]"),
        (lambda: group_advantages([1, 0], [1, 1], scale="whiten_tokens", lengths_R=[3, -1]), "tokens for each of 2"),
        (lambda: group_advantages([1, 0], [1, 1], scale="whiten_tokens", lengths_R=[3, np.inf]), "for each of 2"),
        (lambda: group_advantages([1, 0], [1, 1], [0.5, nan], "none"), "give a finite number for each"),
        (lambda: group_advantages([1], ["a"], "batch", "group"), "scale='group' has no deviation for a group of one"),
        (lambda: group_advantages([1, 1, 0, 1], list("aabb"), "batch", "group"), "nor of equal rewards: use another"),
        (
            lambda: group_advantages([1, 0], ["a", "a"], [0.5]),
            "baseline=[0.5]: give a finite number for each of 2 rollouts",
        ),
        (lambda: group_advantages([1], ["a"], [nan]), "baseline=[nan]: give a finite number"),
        (lambda: group_advantages([1], ["a"], [0.5]), "scale='group' has no deviation for a group of one"),
        (lambda: group_advantages([1], ["a"], "posterior"), "belief_R=None"),
        (lambda: group_advantages([1], ["a"], "posterior", belief_R=Beta([1, 1], [1, 1])), "belief_R=2 entries"),
        (lambda: group_advantages([2], ["a"], "posterior", belief_R=Beta([1], [1])), "rewards_R[0] = 2 lies outside"),
    ],
)
def test_bad_input(call, text):
    with pytest.raises(InputError, match=re.escape(text)):
        call()


# --- a whole batch, as trainers use it ---


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("reward", [0.0, 0.2, 1.0, -3.0])
def test_rewards_that_are_all_equal_give_no_gradient_whatever_was_believed(baseline, scale, reward):
    ids, belief = ["a", "a", "b", "c"], Beta([1, 1, 50, 0.1], [1, 1, 1, 9])
    advantages = advantages_of_step(
        [reward, reward + 1e-9, reward, nan], ids, baseline, scale, belief_R=belief, lengths_R=[1, 2, 3, 4]
    )
    assert advantages.tolist() == [0, 0, 0, 0]


@settings(max_examples=25, deadline=None)
@given(data=rollouts())
@pytest.mark.parametrize(("baseline", "scale", "weight"), OPTIONS)
def test_rewards_in_the_unit_interval_are_as_group_advantages_has_them(data, baseline, scale, weight):
    ids, rewards = data
    belief_R = beliefs(ids)
    made = rollouts_of(rewards, ids, belief_R=belief_R, lengths_R=lengths(ids))
    batch = batch_advantages(made, baseline, scale, weight)
    if baseline == "posterior":  # whose size is that of GRPO
        away = group_advantages(rewards, ids, baseline, "none", belief_R=belief_R)
        known = ~np.isnan(made.rewards_R)
        if not made.by_beliefs.calibration.changed_R.any():
            assert (made.rewards_R - batch.baseline_R)[known] == pytest.approx(away[known], rel=1e-12, abs=1e-12)
    elif batch.values_R.any():
        plain = group_advantages(rewards, ids, baseline, scale, weight, belief_R=belief_R, lengths_R=lengths(ids))
        assert batch.values_R == pytest.approx(plain, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("scale", ["none", "group", "batch", "whiten"])
def test_a_baseline_of_the_policys_own_is_as_the_posterior_has_it(scale):
    """The same expected successes, by either name, also on a scale of rewards of its own."""
    success, ids = np.array([0.0, 1.0, 1.0, 0.0, 1.0]), ["a", "a", "b", "b", 1]
    mean_R = beliefs(ids).mean
    as_if = Beta(1e9 * mean_R, 1e9 * (1 - mean_R))  # so firm that the other rollouts do not move it
    for about in ({"reward_range": (-1, 3)}, {"reward_range": (-1, 3), "success_R": success}):
        posterior = batch_advantages(
            rollouts_of(-1 + 4 * success, ids, belief_R=as_if, **about), "posterior", scale
        ).baseline_R
        own = batch_advantages(rollouts_of(-1 + 4 * success, ids, expected_R=mean_R, **about), "policy", scale)
        assert own.baseline_R == pytest.approx(posterior, abs=1e-5)


@pytest.mark.parametrize("scale", ["none", "batch", "whiten", "whiten_tokens"])
def test_rows_without_an_expectation_are_as_if_absent(scale):
    success, ids, lengths_R = np.array([0.0, 1.0, 1.0, 0.0]), ["a", "b", "c", "d"], np.array([3, 4, 5, 6])
    own = advantages_of_step(success, ids, "policy", scale, expected_R=[0.2, nan, 0.7, 0.6], lengths_R=lengths_R)
    rest = [0, 2, 3]
    alone = advantages_of_step(
        success[rest], ["a", "c", "d"], "policy", scale, expected_R=[0.2, 0.7, 0.6], lengths_R=lengths_R[rest]
    )
    assert own[rest] == pytest.approx(alone)
    assert own[1] == 0
    nothing = advantages_of_step(success, ids, "policy", scale, expected_R=[nan] * 4, lengths_R=lengths_R)
    assert nothing.tolist() == [0, 0, 0, 0]


def test_a_policy_without_a_rule_of_its_own_is_told():
    with pytest.raises(InputError, match="this policy has none"):
        advantages_of_step([1, 0], ["a", "b"], "policy", "none")
    with pytest.raises(InputError, match="baseline='policy'"):
        group_advantages([1, 0], ["a", "b"], "policy", "none")


@pytest.mark.parametrize("given_success", [False, True])
def test_the_posterior_baseline_is_in_the_units_of_the_rewards(given_success):
    unit, ids = np.array([0.0, 0.25, 1.0, 1.0, 0.0, 0.5]), ["a", "a", "b", "b", 1, "1"]
    rewards, belief = -3 + 6 * unit, beliefs(ids)
    given = {"success_R": unit} if given_success else {}
    plain = group_advantages(unit, ids, "posterior", "none", belief_R=belief)
    made = rollouts_of(rewards, ids, belief_R=belief, reward_range=(-3, 3), **given)
    assert rewards - batch_advantages(made, "posterior", "none").baseline_R == pytest.approx(6 * plain, abs=1e-9)
    binary = np.round(unit + 0.1)
    given = {"success_R": binary} if given_success else {}
    scaled = group_advantages(binary, ids, "posterior", "group", belief_R=belief)
    got = advantages_of_step(-3 + 6 * binary, ids, "posterior", "group", belief_R=belief, reward_range=(-3, 3), **given)
    assert got / scaled == pytest.approx(np.full(6, got[0] / scaled[0]), rel=1e-3)  # one factor for the step
    assert 0.7 < got[0] / scaled[0] < 1.3


def test_a_format_reward_that_all_have_is_no_advantage():
    """0.2 for the format and 0.8 for the answer: known prompts of success 0, 1/2 and 1, with the range (0, 1)."""
    success = np.array([0.0] * 20 + [0.0, 1.0] * 10 + [1.0] * 20)
    ids = np.repeat(["never", "half", "always"], 20)
    belief = Beta(np.repeat([0.3, 50, 99.7], 20), np.repeat([99.7, 50, 0.3], 20))
    made = rollouts_of(0.2 + 0.8 * success, ids, belief_R=belief, success_R=success)
    away = made.rewards_R - batch_advantages(made, "posterior", "none").baseline_R
    assert away == pytest.approx(0.8 * (success - np.repeat([0, 0.5, 1], 20)), abs=0.02)
    mapped = advantages_of_step(0.2 + 0.8 * success, ids, "posterior", "none", belief_R=belief)
    assert mapped[:20].mean() > 0.1  # taken for success, the format's 0.2 counts as an advantage of hopeless prompts


# --- by hand ---


def test_scales_by_hand():
    """Deviations of 1/2 and of the root of 1/2 in the two groups."""
    rewards, ids = [1, 0, 0, 0, 1, 0], list("aaaabb")
    group = [0.75 / 0.5001, *[-0.25 / 0.5001] * 3, 0.5 / (0.5**0.5 + 1e-4), -0.5 / (0.5**0.5 + 1e-4)]
    assert group_advantages(rewards, ids) == pytest.approx(group, rel=1e-12)
    deviation = np.std(rewards, ddof=1)
    batch = np.array([0.75, -0.25, -0.25, -0.25, 0.5, -0.5]) / (deviation + 1e-4)
    assert group_advantages(rewards, ids, scale="batch") == pytest.approx(batch, rel=1e-12)
    assert group_advantages(rewards[:4], ids[:4], "loo")[0] == pytest.approx(1 / 0.5001, rel=1e-12)


def test_a_given_baseline_is_scaled_by_its_own_advantages_and_a_group_by_its_deviation():
    rewards, ids, base = [1.0, 0.0, 0.5], list("aab"), np.array([0.5, 0.25, 0.0])
    advantages = np.array([0.5, -0.25, 0.5])
    assert group_advantages(rewards, ids, base.tolist(), "none") == pytest.approx(advantages, rel=1e-12)
    root = np.sqrt(np.mean(advantages**2))
    assert group_advantages(rewards, ids, base, "rms") == pytest.approx(advantages / (root + 1e-4), rel=1e-12)
    pair = group_advantages(rewards[:2], ids[:2], base[:2], "group")
    assert pair == pytest.approx(advantages[:2] / (0.5**0.5 + 1e-4), rel=1e-12)
    with pytest.raises(InputError, match="scale='group' has no deviation for a group of one"):
        group_advantages(rewards, ids, base, "group")
    assert group_advantages([nan, 1.0, 0.0], list("abb"), base, "group")[0] == 0  # a group of none is left out


def test_earlier_rounds_are_evidence_and_later_ones_are_none_by_hand():
    """Under Beta(1, 1): the first two know each other, and the third, of the next round, knows both."""
    got = group_advantages(
        [1, 1, 0], list("aaa"), "posterior", "none", belief_R=Beta([1] * 3, [1] * 3), round_R=[0, 0, 1]
    )
    assert got == pytest.approx([1 - 2 / 3, 1 - 2 / 3, 0 - 3 / 4])


def test_prompts_weigh_the_same_by_hand():
    got = group_advantages([1, 0, 0, 1, nan], list("aaabb"), np.zeros(5), "none", "prompt")
    assert got == pytest.approx([5 / 2 / 3, 0, 0, 5 / 2, 0])


@pytest.mark.parametrize(("baseline", "scale", "weight"), OPTIONS)
def test_groups_of_one_and_of_none_divide_nothing_by_0(baseline, scale, weight):
    ids, rewards = ["a", "b", 1, 1], [1.0, nan, 1.0, 0.0]
    with np.errstate(all="raise"):
        advantages = advantages_of(ids, rewards, baseline, scale, weight)
        assert (advantages_of(["a", "a", "b"], [None, nan, nan], baseline, scale, weight) == 0).all()
        assert advantages_of([], [], baseline, scale, weight).shape == (0,)
    assert np.isfinite(advantages).all()


def test_few_rows_and_tokens_have_no_deviation():
    assert group_advantages([1, 0], ["a", "a"], scale="batch") == pytest.approx([0.5 / 0.7072068, -0.5 / 0.7072068])
    assert group_advantages([2.0, nan], ["a", "b"], "loo", "batch").tolist() == [0, 0]
    assert whitened(np.array([0.5, 0.25]), np.array([1.0, 0.0])) == pytest.approx([0, -0.25 / 1e-4])
    assert group_advantages([1, 0], [1, 2], "batch", "whiten_tokens", lengths_R=[0, 0]).tolist() == [0.5, -0.5]


# --- a change of all rewards ---


steps = st.builds(
    lambda seed, prompts, rounds: random_step(seed, prompts, rounds),
    st.integers(0, 10_000),
    st.integers(6, 12),
    st.integers(1, 3),
)


def random_step(seed: int, prompts: int, rounds: int, rows: int = 24) -> Rollouts:
    """0/1 rewards of rollouts in rounds, with vague beliefs about some prompts and firm ones about others."""
    rng = np.random.default_rng(seed)
    at_R, rewards_R = rng.integers(0, prompts, rows), rng.integers(0, 2, rows).astype(float)
    mass_P, mean_P = rng.uniform(0.6, 20, prompts), rng.uniform(0.02, 0.98, prompts)
    belief_R = Beta((mass_P * mean_P)[at_R], (mass_P * (1 - mean_P))[at_R])
    made = rollouts_of(rewards_R, at_R.tolist(), belief_R=belief_R)
    return replace(made, round_R=rng.integers(0, rounds, rows))


def flipped(rollouts: Rollouts, row: int) -> Rollouts:
    rewards_R = rollouts.rewards_R.copy()
    rewards_R[row] = 1 - rewards_R[row]
    return replace(rollouts, rewards_R=rewards_R, success_R=rewards_R)


@given(steps, st.integers(0, 23), st.sampled_from(["group", "none", "batch"]), st.sampled_from(["rollout", "prompt"]))
def test_a_rollouts_baseline_does_not_depend_on_its_own_reward(rollouts, row, scale, weight):
    """Nor on rollouts of its prompt or of others that later rounds added. The gradient is therefore unbiased."""
    one, other = (batch_advantages(x, "posterior", scale, weight) for x in (rollouts, flipped(rollouts, row)))
    assert one.baseline_R[row] == pytest.approx(other.baseline_R[row], abs=1e-12)


@pytest.mark.parametrize("weight", ["rollout", "prompt"])
def test_the_divisor_hardly_depends_on_it(weight):
    """What a rollout's reward adds to its advantage, under scale "none": 2 % at most, among 256 rollouts."""
    rollouts = random_step(0, 64, 2, rows=256)
    for row in range(0, 256, 16):
        pair = [(x, batch_advantages(x, "posterior", "none", weight)) for x in (rollouts, flipped(rollouts, row))]
        rises = [(made.values_R / (x.rewards_R - made.baseline_R))[row] for x, made in pair]
        assert rises[0] == pytest.approx(rises[1], rel=0.02)


@given(steps, st.integers(0, 23), st.integers(0, 23))
def test_later_rounds_change_no_baseline_of_earlier_ones(rollouts, row, other):
    if rollouts.round_R[other] <= rollouts.round_R[row]:
        return
    one, changed = (batch_advantages(x, "posterior", "none") for x in (rollouts, flipped(rollouts, other)))
    assert one.baseline_R[row] == pytest.approx(changed.baseline_R[row], abs=1e-12)


def gradient(baseline: str) -> tuple[float, float]:
    """The expected sum of A d log P / dp over a step, and the expected sum of d p / dp, with all outcomes enumerated.

    Prompts 0 and 1 get two rollouts, and 0 two more if both fail, else 1; prompts 2 and 3 get one.
    """
    p, total, rollouts = np.array([0.3, 0.6, 0.5, 0.8]), 0.0, 0.0
    for bits in range(2**8):
        outcome = np.array([(bits >> k) & 1 for k in range(8)], dtype=float)
        at = [0, 0, 1, 1, 2, 3] + ([0, 0] if not outcome[:2].any() else [1, 1])
        ids_R = np.array(at)
        chance = np.prod(np.where(outcome == 1, p[ids_R], 1 - p[ids_R]))
        belief_R = Beta(np.array([0.4, 1.0, 2.0, 0.5])[ids_R], np.array([0.7, 0.5, 2.0, 0.5])[ids_R])
        made = replace(rollouts_of(outcome, at, belief_R=belief_R), round_R=np.array([0] * 6 + [1] * 2))
        away_R = outcome - batch_advantages(made, baseline, "none").baseline_R
        total += chance * np.sum(away_R * np.where(outcome == 1, 1 / p[ids_R], -1 / (1 - p[ids_R])))
        rollouts += chance * len(at)
    return total, rollouts


def test_the_gradient_is_the_true_one_in_rounds_too():
    total, rollouts = gradient("posterior")
    assert total == pytest.approx(rollouts, rel=1e-12)
    assert abs(gradient("group")[0] - rollouts) > 0.01 * rollouts


def test_right_beliefs_are_hardly_moved():
    rng = np.random.default_rng(0)
    p_P = rng.uniform(0.02, 0.98, 4096)
    success_R = (rng.random(4096) < p_P).astype(float)
    made = rollouts_of(success_R, range(4096), belief_R=Beta(1e4 * p_P, 1e4 * (1 - p_P)))
    assert np.abs(made.by_beliefs.mean_R - p_P).max() < 0.02


def test_a_model_that_learns_quickly_keeps_its_advantages():
    """They exceed beliefs as in the steps before. As much more at once is a change of the reward."""
    rng, p_P = np.random.default_rng(0), np.linspace(0.1, 0.6, 256)
    success_R = (rng.random(256) < p_P + 0.2).astype(float)
    made = rollouts_of(success_R, range(256), belief_R=Beta(20 * p_P, 20 * (1 - p_P)))
    learning = replace(made, earlier=Sums(n=2560.0, lean=0.4 * 2560))
    assert batch_advantages(learning, "posterior", "group").values_R.mean() > 0.3
    assert abs(batch_advantages(made, "posterior", "group").values_R.mean()) < 0.05
    assert sums_of(learning).lean > 0.3 * 256
    assert sums_of(made).lean == 0  # what is usual has not changed


def test_weight_prompt_counts_the_scored_rollouts_only():
    """With the posterior baseline too, as in group_advantages: the weights of a prompt's scored rows sum up alike."""
    ids, rewards = list("aaaabb"), np.array([0.0, 1.0, np.nan, np.nan, 0.0, 1.0])
    batch = rollouts_of(rewards, ids)
    plain, weighted = (batch_advantages(batch, "posterior", "rms", weight).values_R for weight in ("rollout", "prompt"))
    ratio = weighted[[0, 1, 4, 5]] / plain[[0, 1, 4, 5]]
    assert ratio == pytest.approx(np.full(4, ratio[0]))  # two scored rollouts of each prompt
    assert (weighted[2:4] == 0).all()


@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("p", [0.05, 0.3, 0.9])
def test_maxrl_in_groups_has_the_gradient_of_its_objective(n, p):
    """Over all outcomes: of order n - 1, because the mean that is subtracted contains the rollout itself."""
    gradient = 0.0
    for outcome in itertools.product([0.0, 1.0], repeat=n):
        rewards = np.array(outcome)
        chance = np.prod(np.where(rewards == 1, p, 1 - p))
        score = (rewards - p) / (p * (1 - p))  # of a Bernoulli variable, with respect to p
        gradient += chance * np.mean(group_advantages(rewards, ["a"] * n, scale="maxrl") * score)
    assert gradient == pytest.approx((1 - (1 - p) ** (n - 1)) / p)


def test_maxrl_weighs_single_rollouts_by_the_believed_rate():
    rates = np.array([0.02, 0.1, 0.5, 0.9])
    belief = Beta(100 * rates, 100 * (1 - rates))
    found = group_advantages(np.ones(4), list("abcd"), "posterior", "maxrl", belief_R=belief)
    assert found == pytest.approx((1 - rates) * (1 - (1 - rates) ** 8) / rates)
    batch = rollouts_of(np.ones(4) - [0, 0, 0, 1], list("abcd"), belief_R=belief)
    values = batch_advantages(batch, "posterior", "maxrl").values_R
    assert values[:3] / values[0] == pytest.approx(found[:3] / found[0], rel=1e-3)  # EPS is added to the deviation
    groups = rollouts_of([0, 1, 0, 0, 0, 0, 1, 1], list("aaaabbbb"))
    assert batch_advantages(groups, "group", "maxrl").values_R == pytest.approx([-1, 3, -1, -1, -1, -1, 1, 1])


def test_maxrl_in_groups_counts_prompts_alike_if_asked():
    rewards, ids = [0, 1, 0, 0, 1, 1, 0], list("aaaaabb")
    of_step = advantages_of_step(rewards, ids, "group", "maxrl", "prompt")
    assert of_step == pytest.approx(group_advantages(rewards, ids, "group", "maxrl", "prompt"))


@pytest.mark.parametrize("baseline", ["loo", "batch", np.full(2, 0.5)], ids=["loo", "batch", "array"])
def test_maxrl_is_refused_where_it_is_not_defined(baseline):
    with pytest.raises(InputError, match=r"scale='maxrl' with baseline=.*use 'group' or 'posterior'"):
        group_advantages([0, 1], ["a", "a"], baseline, "maxrl")
    with pytest.raises(InputError, match=r"\[0, 1\]"):
        group_advantages([0, 3], ["a", "a"], "group", "maxrl")

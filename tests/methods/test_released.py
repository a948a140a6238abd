"""Methods compared with figures that the authors' own functions gave on random inputs, which the seeds draw again.

Each table names the repository, the commit and the function; of a long one, the lines that decide were run. Where a
method differs from the code on purpose, its docstring says so, and the test compares the part that is the same.
"""

from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from policy_steps import believing, observe, visited

from budgetalloc import Budget
from budgetalloc.methods import (
    a_star_po,
    adarft,
    coba_rl,
    cures,
    depo,
    dump,
    greso,
    knapsack_rl,
    mopps,
    reinforce_ada,
    vip,
)
from budgetalloc.methods.dars import dars_counts
from budgetalloc.methods.downselect import largest_advantages, max_variance, resample_on_correct, top_p_variance
from budgetalloc.methods.e3 import rank_shares
from budgetalloc.methods.gvm import gvm_weights


def rng_of(seed):
    return np.random.default_rng(seed)


# RLHFlow/Reinforce-Ada@05be605, _generate_multi_round_adaptive_downsampling: rollouts, and the rows kept
GENERATED = [8, 8, 8, 32, 32, 8, 8, 32, 8, 16, 8, 8]
KEPT = {0: [0, 1, 5, 6], 1: [0, 1, 3, 7], 2: [0, 1, 2, 5], 5: [0, 1, 2, 6], 6: [0, 1, 3, 5], 7: [0, 1, 2, 13]}
KEPT |= {8: [0, 1, 2, 7], 9: [0, 1, 2, 10]} | {k: [0, 1, 2, 3] for k in (3, 4, 10, 11)}


def test_reinforce_ada_generates_and_keeps_the_same_rows():
    rng = rng_of(0)
    rates = rng.beta(0.5, 0.5, 12)
    rewards_PK = (rng.random((12, 32)) < rates[:, None]).astype(float)
    policy, ids_R, draws_R, had = reinforce_ada(), [], [], defaultdict(int)
    step = policy.begin(range(12), Budget(32 * 12, floor=2))
    while (counts_P := step.request()).any():
        now = np.repeat(np.arange(12), counts_P).tolist()
        for at in now:
            ids_R.append(at)
            draws_R.append(had[at])
            had[at] += 1
        step.observe(now, rewards_PK[ids_R[-len(now) :], draws_R[-len(now) :]])
    assert [had[at] for at in range(12)] == GENERATED
    kept, rows_of = policy.keep(ids_R, rewards_PK[ids_R, draws_R], 48, None, None), defaultdict(list)
    for row in kept:
        rows_of[ids_R[row]].append(draws_R[row])
    assert rows_of == KEPT


# txy77/DEPO@eb99f9a, purning_by_entropy with equal entropies, an initial share of 0.8 and 4 GPUs
CHOSEN = {
    1: (2, [0, 1, 2, 3, 5, 6, 7, 11, 12, 13, 14, 15, 17, 19, 20, 21]),
    2: (1, [0, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 15, 16, 21, 22, 23]),
    3: (1, [1, 2, 3, 5, 6, 7, 8, 9, 11, 13, 14, 16, 17, 21, 22, 23]),
    5: (0, [2, 4, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19, 21, 23]),
}


@pytest.mark.parametrize("seed", CHOSEN)
def test_depo_chooses_the_same_prompts(seed):
    filled, expected = CHOSEN[seed]
    rng = rng_of(seed)
    passed, visits = rng.integers(0, 9, (24, 12)), rng.integers(0, 13, 24)
    policy = depo(alpha=0.8, replay=filled / 24 + 1e-12)
    for k in range(12):
        observe(policy, {at: passed[at, k] / 8 for at in range(24) if visits[at] > k})
    counts_P = policy.allocate(range(24), Budget(8 * len(expected), floor=0, cap=8))
    assert np.flatnonzero(counts_P).tolist() == expected


# Within-yao/CoBA-RL@aa6b834, BetaAllocator._allocate_beta_greedy_internal with a sum of 11
ALLOCATED = [
    [2, 26, 27, 2, 2, 2, 2, 2, 2, 2, 25, 2],
    [17, 17, 2, 2, 2, 2, 2, 2, 5, 20, 2, 23],
    [2, 2, 2, 2, 22, 2, 21, 2, 14, 18, 2, 7],
]


@pytest.mark.parametrize(("seed", "expected"), list(enumerate(ALLOCATED)))
def test_coba_rl_gives_the_same_counts(seed, expected):
    rates = rng_of(seed).integers(1, 16, 12) / 16
    counts_P = visited(coba_rl(), rates).allocate(range(12), Budget(96)).tolist()
    both = (sorted(zip(rates, counts, strict=True)) for counts in (counts_P, expected))
    assert next(both) == next(both)  # of prompts with equal rates, any may have the odd rollout


# HieuNT91/VIP@0c17c79, solve with gamma = 0 (the paper's objective): real numbers, which it rounds afterwards
SOLVED = {
    ("rloo", 0): [10.208, 9.345, 5.352, 4.765, 8.206, 6.377, 10.394, 9.354],
    ("rloo", 1): [9.844, 5.484, 7.13, 5.519, 9.089, 9.721, 7.544, 9.67],
    ("dr_grpo", 0): [11.243, 9.974, 4.113, 3.255, 8.298, 5.614, 11.517, 9.986],
    ("dr_grpo", 1): [10.602, 4.453, 6.77, 4.503, 9.534, 10.428, 7.353, 10.357],
}


@pytest.mark.parametrize(("form", "seed"), SOLVED)
def test_vip_is_within_a_rollout_of_the_same_optimum(form, seed):
    rates = rng_of(seed).uniform(0.02, 0.98, 8)
    policy = believing(vip(form=form), {at: (1e8 * p, 1e8 * (1 - p)) for at, p in enumerate(rates)})
    counts_P = policy.allocate(range(8), Budget(64, floor=3, cap=32))
    assert np.abs(counts_P - SOLVED[form, seed]).max() < 1


# Infini-AI-Lab/GRESO@b277843, easy_ and hard_probabilistic_skip at p = 0.5: the chance to keep after these means
KEEP = [0.25, 0.5, 0.25, 1.0, 0.25, 1.0, 0.25, 0.5, 1.0, 0.5, 0.25, 0.5, 0.01, 0.01]


def test_greso_keeps_with_the_same_chance():
    rng = rng_of(0)
    traces = [rng.choice([0.0, 1.0, 0.5], int(rng.integers(1, 9)), p=[0.4, 0.4, 0.2]).tolist() for _ in range(12)]
    chances = []
    for trace in [*traces, [1.0] * 8, [0.0] * 9]:
        policy = greso(change=0.0)
        for mean in trace:
            observe(policy, {"x": mean})
        chances.append(max(0.5 ** policy.memory.recall(["x"])["run"][0], 0.01))
    assert chances == KEEP


# ZexuSun/CurES@eccf298, init_sample_size where all gradients have norm 1: counts after 4 rollouts of each prompt
SIZES = {
    0: ([4, 3, 2, 1, 1, 0, 0, 0, 0, 4, 3, 4], [0, 19, 22, 19, 19, 0, 0, 0, 0, 0, 19, 0]),
    2: ([4, 1, 0, 1, 2, 4, 2, 0, 1, 3, 4, 3], [0, 13, 0, 13, 15, 0, 15, 0, 13, 13, 0, 13]),
}


@pytest.mark.parametrize("seed", SIZES)
def test_cures_divides_the_budget_alike_among_mixed_prompts(seed):
    passed, sizes = SIZES[seed]
    assert rng_of(seed).integers(0, 5, 12).tolist() == passed
    mixed = {at: (1e6 * k, 1e6 * (4 - k)) for at, k in enumerate(passed) if 0 < k < 4}
    policy = believing(cures(first=0), mixed)
    counts_P = policy.allocate(list(mixed), Budget(sum(sizes), cap=96))
    assert np.abs(counts_P - np.array(sizes)[list(mixed)]).max() <= 1  # the code rounds each by itself


# LiaoMengqi/E3-RL4LLMs@7e90b8e, get_rollout_n_per_prompt(ranks, 96, 4, 16)
SHARES = [
    [5, 10, 5, 9, 4, 6, 8, 6, 16, 11, 7, 9],
    [4, 10, 7, 9, 16, 6, 6, 8, 4, 9, 5, 12],
]


@pytest.mark.parametrize(("seed", "expected"), list(enumerate(SHARES)))
def test_e3_shares_by_rank_alike(seed, expected):
    assert rank_shares(rng_of(seed).permutation(16)[:12] / 16, 96, 4, 16).tolist() == expected


# RLHFlow/GVM@d640a75, calc_sample_ratio
RATIOS = [
    [0.07059, 0.09438, 0.087, 0.17691, 0.16028, 0.0, 0.0, 0.0, 0.20489, 0.03822, 0.10625, 0.06146],
    [0.12795, 0.08183, 0.07953, 0.02816, 0.0, 0.18659, 0.05531, 0.08755, 0.09862, 0.1219, 0.03899, 0.09357],
]


@pytest.mark.parametrize(("seed", "expected"), list(enumerate(RATIOS)))
def test_gvm_weighs_prompts_alike(seed, expected):
    rng = rng_of(seed)
    rates, norms = rng.integers(0, 9, 12) / 8, rng.uniform(0.5, 2, 12)
    weights_P = gvm_weights(rates, norms, 1e-3, 2.0)
    assert weights_P / weights_P.sum() == pytest.approx(expected, abs=6e-6)


# yangzhch6/DARS@9b21b71, schedule_ET and schedule_HW after 16 rollouts, without a largest number
TOTALS = {
    ("ET", False): [133, 69, 37, 27, 22, 19, 18, 17, 16],
    ("ET", True): [46, 34, 25, 21, 19, 18, 17, 17, 16],
    ("HW", False): [256, 128, 64, 43, 32, 26, 22, 19, 16],
    ("HW", True): [90, 62, 43, 34, 28, 24, 21, 19, 16],
}


@pytest.mark.parametrize(("variant", "std"), TOTALS)
def test_dars_wants_the_same_totals(variant, std):
    counts_P = dars_counts(np.arange(9) / 16, np.full(9, 16), variant, std)
    assert counts_P.tolist() == TOTALS[variant, std]


def test_mopps_believes_the_same():
    """thu-rllab/MoPPS@a883f51, PosteriorSampler.train with a decay of 0.5: alpha and beta after six steps."""
    policy, rng = mopps(), rng_of(0)
    for _ in range(6):
        prompts, means = rng.permutation(6)[:4], rng.integers(0, 9, 4) / 8
        observe(policy, dict(zip(prompts.tolist(), means.tolist(), strict=True)))
    belief_P = policy.belief(range(6))
    assert belief_P.alpha_P == pytest.approx([11.5, 12.5, 8.9375, 5.0, 6.53125, 6.75])
    assert belief_P.beta_P == pytest.approx([4.5, 4.5, 8.5625, 11.0, 11.21875, 9.25])


def test_adarft_moves_its_target_alike():
    """uscnlp-lime/verl@bf2dd7e, the update in fit with eta = 50, alpha = 2, beta = 0.5."""
    policy, targets = adarft(offline={}), []
    for mean in rng_of(0).integers(0, 9, 6) / 8:
        observe(policy, {"x": mean})
        targets.append(policy.memory.numbers["target"])
    assert targets == pytest.approx([31.7574, 44.0034, 44.0034, 20.8975, 0.0, 0.0], abs=1e-3)


def test_a_star_po_has_the_same_values():
    """ZhaolinGao/A-PO@c8823a3, RLHFDataset._process_values with beta1 = 0.5."""
    passed = rng_of(0).integers(0, 2, (4, 8)).sum(axis=1).tolist()
    step = a_star_po(offline={at: (k, 8) for at, k in enumerate(passed)}).begin(range(4), Budget(4, min_group=1))
    assert step.expected_success(range(4), [0.0] * 4) == pytest.approx(
        [0.611284, 0.942809, 0.878221, 0.804034], abs=1e-6
    )


# liziniu/KnapsackRL@ca5d5f5, sampling_budget_by_knapsack(n=8, max_n=128): its search is not exact
SPENT = {
    0: [2, 2, 6, 10, 7, 13, 12, 12, 10, 6],
    1: [2, 2, 9, 4, 18, 12, 9, 3, 12, 9],
    3: [2, 2, 11, 10, 10, 7, 3, 7, 14, 14],
}


@pytest.mark.parametrize(("seed", "spent"), list(SPENT.items()))
def test_knapsack_rl_reaches_at_least_the_same_value(seed, spent):
    rates = rng_of(seed).integers(1, 8, 10) / 8
    rates[:2] = [0.0, 1.0]
    counts_P = visited(knapsack_rl(), rates).allocate(range(10), Budget(80, cap=128))

    def value(counts_P):
        return ((1 - rates**counts_P - (1 - rates) ** counts_P) * rates * (1 - rates) ** 2).sum()

    assert counts_P[:2].tolist() == [2, 2]
    assert value(np.array(spent)) <= value(counts_P) + 1e-12
    assert np.abs(counts_P - spent).max() <= 2


# microsoft/rStar@ecbfb94, resample_of_correct: 16 of 32, at least 2 of each kind
RESAMPLED = [
    [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 20],
    [1, 3, 4, 5, 6, 9, 10, 12, 13, 15, 19, 21, 22, 26, 27, 28],
    [2, 3, 5, 6, 10, 12, 13, 14, 15, 16, 17, 18, 21, 26, 28, 30],
    [1, 2, 3, 6, 8, 11, 14, 15, 16, 17, 20, 22, 23, 25, 26, 30],
]


@pytest.mark.parametrize(("seed", "expected"), list(enumerate(RESAMPLED)))
def test_roc_keeps_the_same_rows(seed, expected):
    rng = rng_of(seed)
    rewards = (rng.random(32) < rng.uniform(0.05, 0.95)).astype(float)
    assert resample_on_correct(["a"] * 32, rewards, 16, rng.random(32)).tolist() == expected


# YixuanEvenXu/pods@187f43b, maxvargrpo_trainer: 6 of 16
SPREAD = [[3, 5, 9, 11, 12, 13], [1, 2, 3, 6, 9, 14], [2, 3, 5, 7, 11, 13]]


@pytest.mark.parametrize(("seed", "expected"), list(enumerate(SPREAD)))
def test_pods_keeps_the_same_rows(seed, expected):
    assert max_variance(["a"] * 16, rng_of(seed).random(16), 6).tolist() == expected


# lzhxmu/CPPO@52faeb3, cppo_ray_trainer with a pruning rate of 1/2
PRUNED = [[2, 6, 7, 8, 9, 12, 14, 15], [1, 3, 4, 6, 7, 11, 12, 15]]


@pytest.mark.parametrize(("seed", "expected"), list(enumerate(PRUNED)))
def test_cppo_keeps_the_same_rows(seed, expected):
    assert largest_advantages(["a"] * 16, rng_of(seed).normal(size=16), 8).tolist() == expected


# mll-lab-nu/RAGEN@20daedc, RolloutFilter._select_top_groups with the groups' variances and without its epsilon
TOP = [[1, 2, 3, 4], [0, 1, 2, 8], [4, 6, 8, 9]]


@pytest.mark.parametrize(("seed", "expected"), list(enumerate(TOP)))
def test_top_p_keeps_groups_of_the_same_variance(seed, expected):
    passed = rng_of(seed).integers(0, 9, 10)
    rewards = [float(j < k) for k in passed for j in range(8)]
    kept = np.unique(top_p_variance(np.repeat(np.arange(10), 8).tolist(), rewards, 0.6) // 8)
    variance_G = passed * (8 - passed)
    assert sorted(variance_G[kept]) == sorted(variance_G[expected])  # equal variances: either group


def test_dump_learns_and_draws_categories_alike():
    """ZhentingWang/DUMP@235e85d, LearnabilityEstimator.update and compute_sampling_weights."""
    policy, rng = dump(domain_of=lambda x: x[0], seed=0), rng_of(0)
    for _ in range(12):
        means = {}
        for category, chance in {"a": 0.9, "b": 0.6, "c": 0.3}.items():
            if rng.random() < chance:
                means[category + "1"] = rng.integers(0, 9) / 8
        observe(policy, means)
    numbers = policy.memory.numbers
    assert [numbers[f"q:{x}"] for x in "abc"] == pytest.approx([0.604805, 0.723372, 0.553813], abs=1e-6)
    assert [numbers[f"n:{x}"] for x in "abc"] == [88, 64, 24]
    drawn, ids = Counter(), [c + str(k) for c in "abc" for k in range(2)]
    for seed in range(500):
        counts_P = replace(policy, seed=seed).allocate(ids, Budget(8, floor=0))
        drawn[ids[int(np.argmax(counts_P))][0]] += 1
    for category, weight in {"a": 0.052062, "b": 0.304411, "c": 0.643527}.items():
        assert drawn[category] / 500 == pytest.approx(weight, abs=4 * (weight * (1 - weight) / 500) ** 0.5)

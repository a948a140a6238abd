"""The rules that learn the mixture, in worlds with a known answer."""

import math

import numpy as np
import pytest

from budgetalloc import StateError
from budgetalloc.contrib.mixture_rules import Adept, Evidence, Learn, efficiency, success_of_domains

PRIOR, PROMPTS = 0.5, 40  # of a belief: its mean, and prompts of each domain


class Beliefs:
    """Domains of prompts with known rates, rolled out with given counts; the evidence fades as in `adaptive`."""

    def __init__(self, rates_D, seed=0, prompts=PROMPTS):
        self.rng, self.rates_D = np.random.default_rng(seed), np.array(rates_D)
        self.place_P = np.repeat(np.arange(len(rates_D)), prompts)
        self.s_P, self.n_P = np.zeros(len(self.place_P)), np.zeros(len(self.place_P))

    def step(self, counts_D):
        chosen = [self.rng.choice(np.flatnonzero(self.place_P == d), n) for d, n in enumerate(counts_D)]
        at_R = np.concatenate(chosen).astype(int)
        success_R = (self.rng.random(len(at_R)) < self.rates_D[self.place_P[at_R]]).astype(float)
        before = self.s_P[at_R], self.n_P[at_R]
        self.s_P, self.n_P = 0.98 * self.s_P, 0.98 * self.n_P
        np.add.at(self.s_P, at_R, success_R)
        np.add.at(self.n_P, at_R, 1.0)
        mass_P, mass_R = np.full(len(self.s_P), 0.6), np.full(len(at_R), 0.6)
        return (
            Evidence(self.place_P, self.s_P, self.n_P, mass_P, np.full(len(mass_P), PRIOR)),
            Evidence(self.place_P[at_R], *before, mass_R, np.full(len(at_R), PRIOR)),
            success_R,
            2 * np.sqrt(self.rates_D * (1 - self.rates_D))[self.place_P[at_R]],
        )


def shares(rule):
    weight_D = np.maximum(rule.weights_D() / rule.weights_D().sum(), 0.02)
    return weight_D / weight_D.sum()


def test_success_hardly_depends_on_how_often_a_prompt_was_rolled_out():
    """Prompts of rate 1 and 0: the policy turns to the second, and the pooled mean of rollouts would fall."""
    mass_P, prior_P = np.full(2, 0.6), np.full(2, PRIOR)
    for more in (4, 40):
        seen = Evidence(np.zeros(2, dtype=int), np.array([4.0, 0]), np.array([4.0, more]), mass_P, prior_P)
        assert success_of_domains(seen, 1)[0] == pytest.approx(0.5, abs=0.03)


def test_noise_and_hopeless_domains_get_little_and_those_that_learn_get_most():
    """Noise at 1/2, hopeless at 0, solved at 1, and one that improves with its rollouts."""
    world, rule = Beliefs([0.5, 0.0, 1.0, 0.1]), Learn(4)
    for _ in range(60):
        counts_D = np.rint(256 * shares(rule)).astype(int)
        rule.observe(*world.step(counts_D))
        world.rates_D[3] = min(world.rates_D[3] + counts_D[3] * 5e-5, 0.9)
    share_D = shares(rule)
    assert share_D[3] > 0.6
    assert share_D[0] < 0.25
    assert share_D[1] < 0.1
    assert share_D[2] < 0.1
    assert rule.described()["efficiency"][0] < 0.3


@pytest.mark.parametrize("seed", range(5))
def test_a_solved_domain_that_falls_gets_rollouts_back_within_the_bound(seed):
    """5 probes a step of 400 prompts, and a fall by 0.5, which shows within 5 steps: they visit 25 prompts."""
    world, rule = Beliefs([1.0, 0.5], seed, prompts=400), Learn(2)
    for _ in range(40):
        rule.observe(*world.step([100, 156]))
    before = shares(rule)[0]
    world.rates_D[0] = 0.5
    for _ in range(5):
        rule.observe(*world.step([5, 251]))
    assert before < 0.1
    assert shares(rule)[0] > max(3 * before, 0.15)


@pytest.mark.parametrize(("success", "low", "high"), [(0.0, 0.2, 0.4), (0.5, 0.25, 0.4), (1.0, 0.0, 0.06)])
def test_what_64_rollouts_show_counts_for_all_prompts_of_the_domain(success, low, high):
    """400 prompts with 5 successes in 5 rollouts each, and a step whose evidence about them has not arrived yet."""
    five_P, five_R, success_R = np.full(400, 5.0), np.full(64, 5.0), (np.arange(64) < 64 * success).astype(float)
    prior = [np.full(400, 0.6), np.full(400, PRIOR)], [np.full(64, 0.6), np.full(64, PRIOR)]
    rule, zero_P, zero_R = Learn(1), np.zeros(400, dtype=int), np.zeros(64, dtype=int)
    after, before = Evidence(zero_P, five_P, five_P, *prior[0]), Evidence(zero_R, five_R, five_R, *prior[1])
    for _ in range(2):  # the first step only sets the level
        rule.observe(after, before, success_R, np.zeros(64))
    assert low < rule.described()["teaching"][0] < high


def test_a_domain_without_success_is_given_up_slowly_and_not_for_good():
    """Its teaching relative to that of a domain at 1/3, after so many rollouts without success."""
    weights = []
    for n in (0, 50, 500, 5000):
        world, rule = Beliefs([0.0, 1 / 3]), Learn(2)
        rule.observe(*world.step([n, 256]))
        weights.append(rule.described()["teaching"][0] / rule.described()["teaching"][1])
    assert weights == sorted(weights, reverse=True)
    assert weights[1] > 0.2
    assert weights[2] > 0.05
    assert 0 < weights[3] < 0.05


def test_an_effect_that_is_smaller_than_its_error_says_nothing():
    ratio_D = efficiency(np.array([0.3, 0.01]), np.array([1e-4, 1.0]), np.array([100.0, 100.0]))
    assert ratio_D[0] > 1.5
    assert ratio_D[1] == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("change", [{"taught": [1.0]}, {"moved": [None] * 3}, {"steps": "x"}])
def test_a_damaged_rule_changes_nothing(change):
    rule = Learn(3)
    rule.observe(*Beliefs([0.9, 0.5, 0.1]).step([10, 20, 30]))
    before = rule.state_dict()
    with pytest.raises(StateError, match="Learn is damaged"):
        rule.load_state_dict({"learned": before["learned"] | change})
    np.testing.assert_equal(rule.state_dict(), before)


def gains(place_R, size_R):
    """A step of rollouts with these domains and absolute advantages."""
    none = np.zeros(0)
    of_place = [Evidence(np.array(each, dtype=int), *[none] * 4) for each in ([], place_R)]
    return *of_place, none, np.array(size_R)


def test_the_scores_of_adept_by_hand():
    """Three steps: 0 once with a gain of 1/4, 1 twice with a mean of 1/2, of which 1.5 counts as 1."""
    rule = Adept(3)
    for at, gain in ((0, 0.25), (1, 0.0), (1, 1.5)):
        rule.observe(*gains([at, at, 2], [gain, gain, 0.9]))
    rule.observe(*gains([], []))
    spread = 0.6 * math.log(3)
    expected = [0.25 + math.sqrt(spread), 0.5 + math.sqrt(spread / 2), np.nan]
    np.testing.assert_allclose(rule.described()["score"], expected)


def test_adept_gives_all_to_one_domain_tries_each_first_and_follows_a_change():
    rule, chosen = Adept(3), []
    for step in range(600):
        gain = (0.1, 0.9, 0.0) if step < 200 else (0.9, 0.1, 0.0)
        weight_D = rule.weights_D()
        assert sorted(weight_D) == [0, 0, 1]
        chosen.append(int(np.argmax(weight_D)))
        rule.observe(*gains([chosen[-1]] * 9 + [2], [gain[chosen[-1]]] * 9 + [0.5]))
    assert chosen[:3] == [0, 1, 2]
    assert chosen[:200].count(1) > 150
    assert chosen[400:].count(0) > 150


@pytest.mark.parametrize("row", [[3, 0.5], [-1, 0.5], [0, 1.5], [0, np.nan]])
def test_a_damaged_state_of_adept_changes_nothing(row):
    rule = Adept(3)
    rule.observe(*gains([0, 0, 1], [0.1, 0.2, 0.3]))
    before = rule.state_dict()
    with pytest.raises(StateError, match="damaged"):
        rule.load_state_dict({"recent": np.vstack([before["recent"][1:], row])})
    np.testing.assert_equal(rule.state_dict(), before)

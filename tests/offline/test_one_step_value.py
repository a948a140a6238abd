"""A policy's value one step ahead of a log: against worlds whose truth is known."""

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc import InputError, UnsupportedError
from budgetalloc.offline.one_step_value import one_step_value
from budgetalloc.policies import Needs, Policy
from budgetalloc.policies.methods import method_of
from budgetalloc.values import mixed_group

POOL, BATCH, GROUP = 24, 6, 4
RATES = np.linspace(0, 1, POOL)
NAN = float("nan")
COLUMNS = ("step_R", "ids_R", "rewards_R", "lengths_R", "predicted_R", "counts_R")


def log_of(order_S, rewards_R, group=GROUP, batch=BATCH):
    """Batches of prompts in this order, each prompt with a group of rollouts."""
    ids_R = np.repeat(order_S, group)
    step_R = np.repeat(np.arange(len(order_S) // batch), batch * group)
    return ba.Ledger(step_R, ids_R.tolist(), np.asarray(rewards_R, float), *np.zeros((3, len(ids_R)), dtype=int))


def draw(rng, inclusion, steps):
    if inclusion == "epochs":
        order_S = np.concatenate([rng.permutation(POOL) for _ in range(-(-steps * BATCH // POOL))])[: steps * BATCH]
    else:
        order_S = np.concatenate([rng.choice(POOL, BATCH, replace=False) for _ in range(steps)])
    return log_of(order_S, rng.random(len(order_S) * GROUP) < np.repeat(RATES[order_S], GROUP))


def first_of(key):
    """Groups of 3 to the eight prompts that come first, by what the policy has seen; to none of infinite key."""

    def decide(view):
        key_P = key(view)
        order = np.argsort(key_P, kind="stable")[:8]
        counts_P = np.zeros(len(key_P), dtype=np.int64)
        counts_P[order[np.isfinite(key_P[order])]] = 3
        return counts_P

    return Policy("first", decide, ba.BetaEstimator(), needs=Needs(candidates="all"))


def middling():
    return first_of(lambda view: np.abs(view.belief_P.mean - 0.55))


def unseen():
    return first_of(lambda view: np.where(view.cold_P, np.array(view.ids_P), np.inf))


def worth(counts_P):
    table = mixed_group(ba.Point(RATES), np.arange(counts_P.max(initial=0) + 1))
    return table[np.arange(len(counts_P)), counts_P].sum()


def truth(policy, log):
    """What the policy is really worth a step of this log: the rates are known."""
    values = []
    for step in np.unique(log.step_R):
        rows = log.step_R == step
        values.append(worth(policy.allocate(range(POOL), ba.Budget(24, floor=0))))
        policy.observe(np.array(log.ids_R)[rows], log.rewards_R[rows])
    return np.mean(values)


@pytest.mark.slow
@pytest.mark.parametrize("estimate", ["doubly robust", "horvitz-thompson"])
@pytest.mark.parametrize(("policy", "inclusion", "steps"), [(middling, "independent", 10), (unseen, "epochs", 4)])
def test_the_value_is_the_truth_on_average_with_a_poor_model(policy, inclusion, steps, estimate):
    """The policy's wishes depend on what was logged before; of unseen prompts, in an epoch, each could come next."""
    rng, errors, claimed = np.random.default_rng(0), [], []
    for _ in range(150):
        log = draw(rng, inclusion, steps)
        estimated = one_step_value(
            *(policy(), log, ba.Budget(24, floor=0)), pool=range(POOL), inclusion=inclusion, estimate=estimate
        )
        assert estimated.modelled == 0
        errors.append(estimated.value - truth(policy(), log))
        claimed.append(estimated.error)
    assert np.mean(errors) == pytest.approx(0, abs=3.5 * np.std(errors) / len(errors) ** 0.5)
    if steps > 4:
        assert np.sqrt(np.mean(np.square(claimed))) == pytest.approx(np.std(errors), rel=0.35)


def test_the_wrong_inclusion_is_far_off():
    """Why epochs matter: an unseen prompt comes ever more surely, and fresh draws of every batch would be less sure."""
    log = draw(np.random.default_rng(1), "epochs", 4)
    right = one_step_value(unseen(), log, ba.Budget(24, floor=0), estimate="horvitz-thompson")
    wrong = one_step_value(unseen(), log, ba.Budget(24, floor=0), estimate="horvitz-thompson", inclusion="independent")
    assert wrong.value > 1.3 * right.value


@pytest.mark.slow
def test_self_normalised_agrees_over_a_long_log():
    log = draw(np.random.default_rng(2), "independent", 600)
    plain, normalised = (
        one_step_value(middling(), log, ba.Budget(24, floor=0), inclusion="independent", estimate=estimate)
        for estimate in ("horvitz-thompson", "self-normalised")
    )
    real = truth(middling(), log)
    assert normalised.value == pytest.approx(real, abs=3.5 * normalised.error)
    assert normalised.error < plain.error


class Known(ba.BetaEstimator):
    """A model that knows the rates."""

    def belief(self, ids_P):
        rates = np.clip(RATES[list(ids_P)], 1e-9, 1 - 1e-9)
        return ba.Beta(1e9 * rates, 1e9 * (1 - rates))


def test_a_right_model_makes_up_for_what_was_not_logged():
    """In later epochs half of the prompts cannot come again, and groups of 5 are larger than the logged ones."""
    log = draw(np.random.default_rng(3), "epochs", 200)
    budget, direct = ba.Budget(24, floor=0), "direct"
    real = truth(middling(), log)
    estimated = one_step_value(middling(), log, budget, model=Known())
    assert 0.2 < estimated.modelled < 0.8
    assert estimated.value == pytest.approx(real, abs=3.5 * estimated.error)
    assert one_step_value(middling(), log, budget, model=Known(), estimate=direct).value == pytest.approx(real, 1e-6)
    poor = one_step_value(middling(), log, budget, model=ba.BetaEstimator(prior=(50, 50)), estimate=direct)
    assert abs(poor.value - real) > 0.1
    large = one_step_value(ba.uniform(), log, ba.Budget(5 * BATCH), candidates=1, model=Known())
    assert large.modelled == 1
    assert large.value == pytest.approx(worth(np.full(POOL, 5)) / 4, 1e-6)


def test_inside_the_batch_nothing_but_the_log_is_needed():
    """Every prompt of the batch was logged: uniform on it is the log itself, to the last mixed group."""
    log = draw(np.random.default_rng(4), "epochs", 40)
    passed = log.rewards_R.reshape(-1, GROUP).sum(axis=1)
    estimated = one_step_value(ba.uniform(), log, estimate="horvitz-thompson")
    assert estimated.value == pytest.approx(((passed > 0) & (passed < GROUP)).sum() / 40)
    assert (estimated.logged, estimated.modelled, estimated.rollouts, estimated.steps) == (1, 0, 24, 40)
    assert one_step_value(ba.uniform(), log, skip=10, estimate="direct").steps == 30
    groups = one_step_value(ba.uniform(), log, BATCH * 2, estimate="horvitz-thompson")
    assert groups.value == pytest.approx((2 * passed * (GROUP - passed) / (GROUP * (GROUP - 1))).sum() / 40)


def test_more_candidates_are_drawn_from_those_that_could_come():
    log = draw(np.random.default_rng(5), "epochs", 200)
    estimated = one_step_value(ba.uniform(), log, 12, candidates=2, estimate="horvitz-thompson")
    assert estimated.modelled == 0
    assert estimated.value == pytest.approx(worth(np.full(POOL, 2)) / 4, abs=4 * estimated.error)


def test_graded_and_missing_rewards():
    rewards = [0.5, 0.5, NAN, 0.25, 0, 0, 0, NAN, NAN, NAN, NAN, NAN]
    estimated = one_step_value(ba.uniform(), log_of([0, 1, 2], rewards, batch=3), 6, estimate="horvitz-thompson")
    assert estimated.value == pytest.approx(2 / 3)  # two of three are unequal; equal; not known, so 0 by the rest
    assert estimated.logged == pytest.approx(4 / 6)


@pytest.mark.parametrize("candidates", [1, 2, "all"])
@pytest.mark.parametrize("name", ["uniform", "knapsack", "adaptive"])
def test_an_integer_takes_the_bounds_that_simulate_gives_it(monkeypatch, name, candidates):
    """adaptive() asks for groups of one, and gets them in both."""
    limits = {"one step": set(), "simulate": set()}
    begin = Policy.begin

    def watched(self, ids_P, budget, *rest, **options):
        limits[where].add(budget)
        return begin(self, ids_P, budget, *rest, **options)

    monkeypatch.setattr(Policy, "begin", watched)
    where, log = "one step", draw(np.random.default_rng(0), "epochs", 8)
    one_step_value(method_of(name).build(), log, 40, candidates=candidates)
    where = "simulate"
    list(ba.simulate(name, ba.Replay(log), 40, 2, prompts=BATCH, candidates=candidates))
    assert limits["one step"] == limits["simulate"]
    (limit,) = limits["simulate"]
    assert limit.min_group == (1 if name == "adaptive" else 2)


def test_groups_of_one_are_never_mixed():
    one_each = Policy(
        "one each", lambda view: np.ones(len(view.ids_P), int), ba.BetaEstimator(), needs=Needs("all", min_group=1)
    )
    estimated = one_step_value(one_each, draw(np.random.default_rng(0), "epochs", 8), POOL)
    assert (estimated.value, estimated.rollouts) == (0, POOL)


@pytest.mark.parametrize("gap", [1e-8, 0.1])
def test_rewards_that_differ_by_rounding_alone_are_equal(gap):
    """Trainers pass float32."""
    log = log_of([0, 1], [0.2, 0.2 + gap, 0.2, 0.2 + gap, 1, 1, 1, 1], batch=2)
    estimated = one_step_value(ba.uniform(), log, estimate="horvitz-thompson")
    assert estimated.value == (gap > 1e-6)


def test_groups_are_mixed_by_rewards_and_the_policy_learns_from_success():
    """Prompt 0 fails always but its format differs; prompt 1 succeeds and fails at the same total."""
    seen = []

    def decide(view):
        seen.append(dict(zip(view.ids_P, view.belief_P.mean.tolist(), strict=True)))
        return np.full(len(view.ids_P), 4)

    log = log_of([0, 1, 0, 1], [0, 1, 0, 1, 1, 1, 1, 1] * 2, batch=2)
    success_R = np.array([0, 0, 0, 0, 0, 1, 0, 1] * 2, float)
    log = ba.Ledger(*(vars(log)[x] for x in COLUMNS), success_R=success_R, reward_range=(0, 2))
    estimated = one_step_value(Policy("watching", decide, ba.BetaEstimator()), log, estimate="horvitz-thompson")
    assert estimated.value == 1  # prompt 0's, at each step
    assert seen[1] == {0: 0.1, 1: 0.5}


def test_the_policy_is_not_changed():
    policy = middling()
    one_step_value(policy, draw(np.random.default_rng(0), "epochs", 8), ba.Budget(24, floor=0))
    assert policy.estimator.step == 0


EPOCHS = draw(np.random.default_rng(6), "epochs", 12)
LONG = draw(np.random.default_rng(8), "epochs", 80)
FRESH = draw(np.random.default_rng(7), "independent", 12)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: one_step_value(middling(), FRESH), InputError, "inclusion='epochs': at step 1 a prompt occurs again"),
        (
            lambda: one_step_value(middling(), LONG, inclusion="independent"),
            InputError,
            r"inclusion='independent': \d+ times in 80 steps a prompt occurs again at the next step, .* about 118",
        ),
        (
            lambda: one_step_value(method_of("speed").build(), EPOCHS, 96, candidates=1),
            UnsupportedError,
            "decides in rounds",
        ),
        (
            lambda: one_step_value(middling(), EPOCHS, ba.Budget(24, floor=0), estimate="horvitz-thompson"),
            UnsupportedError,
            r"estimate='horvitz-thompson': \d+.\d% of the rollouts of first go to prompts that could not",
        ),
        (
            lambda: one_step_value(ba.uniform(), EPOCHS, 48, estimate="self-normalised"),
            UnsupportedError,
            r"100.0% of the rollouts",
        ),
        (
            lambda: one_step_value(
                middling(),
                ba.Ledger(np.repeat([0, 1], 5), [0, 0, 0, 1, 1, 2, 2, 2, 3, 3], np.zeros(10), *np.zeros((3, 10))),
                ba.Budget(24, floor=0),
            ),
            UnsupportedError,
            "Step 0 of the log has groups of 2 to 3 rollouts",
        ),
    ],
)
def test_refusals(make, error, text):
    with pytest.raises(error, match=text):
        make()

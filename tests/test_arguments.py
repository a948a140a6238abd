"""Every public function, with bad values for each of its arguments: a result, or a `BudgetallocError` that names it.

Work is counted in lines of the package that run, and memory is limited, so that the verdict does not depend on the
machine or its load: a loop that grows with the size of a number runs out of lines, an array that does runs out of
memory.
"""

import contextlib
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import budgetalloc as ba
from budgetalloc import testing
from budgetalloc.beliefs import ids, rewards
from budgetalloc.beliefs.memory import Memory
from budgetalloc.errors import BudgetallocError
from budgetalloc.offline import comparison, drift, intervals, offpolicy, one_step_value, replay, simulation, worlds
from budgetalloc.policies import bounds, downselect, hints, mixture
from budgetalloc.policies.costs import bandits, pacing, tokens, trees
from budgetalloc.policies.methods import METHODS
from budgetalloc.policies.published.across_prompts import cero, coba_rl, e3, gvm, knapsack_rl, vip
from budgetalloc.policies.published.in_rounds import dars, xrpo
from budgetalloc.policies.published.which_prompts import brorl, categories, pvpo
from budgetalloc.solvers import systematic

BAD: dict[str, Any] = {
    "None": None,
    "-1": -1,
    "0": 0,
    "0.5": 0.5,
    "1e300": 1e300,
    "2**40": 2**40,
    "2**63": 2**63,
    "10**400": 10**400,
    "nan": float("nan"),
    "inf": float("inf"),
    "True": True,
    "'x'": "x",
    "b'x'": b"x",
    "b'abcd'": b"abcd",
    "[]": [],
    "()": (),
    "{}": {},
    "[None]": [None],
    "['1']": ["1"],
    "[nan, nan]": [float("nan")] * 2,
    "[-1, 2**63]": [-1, 2**63],
    "[[1, 2], [3]]": [[1, 2], [3]],
    "{'a': 4}": {"a": 4},
    "{'a': (1, None)}": {"a": (1, None)},
    "object()": object(),
    "zeros((2, 2))": np.zeros((2, 2)),
    "zeros(0)": np.zeros(0),
    "[[]]": [[]],
    "a function": lambda *_: None,
    "1j": 1j,
}
NAN = float("nan")
LINES = 400_000
MEMORY = 3 * 2**30


class TooMuchWork(BaseException):
    """More lines ran than any call with good arguments needs."""


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    left = [LINES]

    def line(frame: Any, event: str, _: Any) -> Any:
        if event == "line":
            left[0] -= 1
            if left[0] < 0:
                raise TooMuchWork
        return line

    def call(frame: Any, event: str, _: Any) -> Any:
        return line if "budgetalloc" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.fixture(autouse=True, scope="module")
def little_memory() -> Iterator[None]:
    """An array whose size is that of a number asked for is a MemoryError here, whatever the machine has."""
    resource = pytest.importorskip("resource", reason="a limit on memory")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def play(policy: ba.Policy) -> None:
    """Two steps: an argument that a builder takes must not fail later."""
    for given in (ba.Budget(32, floor=0), ba.Budget(32, cap=16)):
        testing.play(policy, list(range(8)), given, np.linspace(0, 1, 8), np.random.default_rng(0))
    if policy.keep is not None:
        policy.keep([0] * 4 + [1] * 4, np.array([0.0, 1] * 4), 4, None)


def drain(result: Any) -> None:
    if inspect.isgenerator(result):
        list(itertools.islice(result, 3))


LOG = testing.log_of(testing.three_kinds(6), steps=6, prompts=3, group=4)
IDS, REWARDS = ["a", "a", "a", "b", "b", "b"], [0.0, 1, 1, 0, 0, 0]
BUDGET, LOOSE = ba.Budget(12), ba.Budget(12, floor=0)
BELIEF = ba.Beta([1.0, 2.0, 3.0], [1.0, 1.0, 1.0])
VALUES = ba.mixed_group(BELIEF, BUDGET.grid())
TOKENS = ba.Budget(None, tokens=500.0, cap=4)
QUOTAS = ba.Budget(12, quotas={"y": (2, 4)})
WORLD = testing.three_kinds
REPLAY = replay.Replay


def policy(**given: Any) -> ba.Policy:
    return ba.Policy(**given)


def _begin(**given: Any) -> None:
    step = ba.knapsack().begin(**given)
    step.request()


def _observe_step(hinted: Any, ids_R: Any, rewards_R: Any, success_R: Any) -> None:
    step = ba.uniform().begin(["a", "b"], ba.Budget(6))
    step.request()
    step.observe(ids_R, rewards_R, success_R, hinted=hinted)
    step.end()


def _gradient(advantages_R: Any) -> None:
    world = ba.Learner(worlds.Task(((0, 1, 0.5), (1, 2, 0.5)), per_skill=4, held_out=2))
    world.rollout([0, 1])
    world.gradient(advantages_R)


def _memory(columns: Any, numbers: Any) -> None:
    memory = Memory(columns, lambda memory, visit: None, numbers)
    memory.observe(["a"], np.array([1.0]))
    memory.tick()


def _offer(**given: Any) -> None:
    bounds.Bounds.resolve(ba.Needs(), candidates=2).offer(**given)


def _resolve(rollouts: Any, prompts: Any, group: Any, **given: Any) -> None:
    bounds.Bounds.resolve(ba.Needs(candidates="all"), **given).budget(rollouts, prompts, group)


def _task(**given: Any) -> None:
    worlds.Learner(worlds.Task(**given)).rollout([0])


def _price(method: str, **given: Any) -> Any:
    return getattr(pacing.DualPrice(0.25), method)(**given)


def _threshold(method: str, **given: Any) -> Any:
    return getattr(pacing.Threshold(0.1, 1.0), method)(**given)


HORIZON = pacing.Horizon(rollouts=40, steps=4, low=0)
PARTS = [(2, 1.0), (2, 2.0)]

CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    # the core
    "Budget": (
        lambda prompts, **given: ba.Budget(**given).check(prompts),
        {
            "rollouts": 12,
            "tokens": None,
            "floor": 2,
            "cap": 8,
            "quantum": 1,
            "min_group": 2,
            "quotas": None,
            "prompts": 3,
        },
    ),
    "Budget.grid": (BUDGET.grid, {"limit": 4}),
    "Beta": (ba.Beta, {"alpha_P": [1.0, 2], "beta_P": [1.0, 2]}),
    "Point": (ba.Point, {"p_P": [0.5, 1]}),
    "Beta.moment": (BELIEF.moment, {"i": 1, "j": 2}),
    "Beta.tilt": (BELIEF.tilt, {"i": 1, "j": 2}),
    "Beta.sample": (BELIEF.sample, {"rng": np.random.default_rng(0)}),
    "Beta.take": (BELIEF.take, {"index": [0, 1]}),
    "Beta.all_pass": (BELIEF.all_pass, {"counts_N": [0, 1, 2]}),
    "Beta.all_fail": (BELIEF.all_fail, {"counts_N": [0, 1, 2]}),
    "Point.moment": (ba.Point([0.5]).moment, {"i": 1, "j": 2}),
    "Point.all_pass": (ba.Point([0.5]).all_pass, {"counts_N": [0, 1, 2]}),
    "BetaEstimator": (ba.BetaEstimator, {"prior": (0.5, 0.5), "discount": 0.9, "idle": 0.9, "drift": True}),
    "BetaEstimator.observe": (
        lambda **given: ba.BetaEstimator().observe(**given),
        {"ids_R": IDS, "success_R": REWARDS},
    ),
    "BetaEstimator.belief": (lambda **given: ba.BetaEstimator().belief(**given), {"ids_P": IDS}),
    "BetaEstimator.cold": (lambda **given: ba.BetaEstimator().cold(**given), {"ids_P": IDS}),
    "BetaEstimator.load_state_dict": (
        lambda **given: ba.BetaEstimator().load_state_dict(**given),
        {"state": ba.BetaEstimator().state_dict()},
    ),
    "Memory": (_memory, {"columns": {"x": 0.0}, "numbers": {"n": 1.0}}),
    "mixed_group": (ba.mixed_group, {"belief": BELIEF, "counts_N": [0, 2, 4]}),
    "hit": (ba.hit, {"belief": BELIEF, "counts_N": [0, 2, 4]}),
    "variance": (ba.variance, {"belief": BELIEF, "counts_N": [0, 2, 4]}),
    "success_gain": (ba.success_gain, {"belief": BELIEF, "counts_N": [0, 2, 4]}),
    "group_advantages": (
        ba.group_advantages,
        {"rewards_R": REWARDS, "ids_R": IDS, "baseline": "loo", "scale": "batch", "weight": "prompt"},
    ),
    "group_advantages, posterior": (
        partial(ba.group_advantages, baseline="posterior"),
        {"rewards_R": [0.0, 1, 1], "ids_R": ["a", "a", "b"], "belief_R": BELIEF},
    ),
    "greedy": (ba.greedy, {"values_PN": VALUES, "costs_P": None, "budget": BUDGET}),
    "greedy, quotas": (
        ba.greedy,
        {"values_PN": VALUES, "costs_P": None, "budget": QUOTAS, "domains_P": ["x", "x", "y"]},
    ),
    "greedy, tokens": (
        ba.greedy,
        {"values_PN": ba.mixed_group(BELIEF, TOKENS.grid()), "costs_P": [10.0, 20, 30], "budget": TOKENS},
    ),
    "proportional": (ba.proportional, {"weights_P": [1.0, 2, 3], "costs_P": None, "budget": LOOSE}),
    "systematic": (
        systematic.systematic,
        {"weights_P": [1.0, 2, 3], "budget": LOOSE, "rng": np.random.default_rng(0)},
    ),
    "certify": (
        ba.certify,
        {
            "values_PN": ba.mixed_group(BELIEF, LOOSE.grid()),
            "costs_P": None,
            "budget": LOOSE,
            "domains_P": ["x", "x", "y"],
            "max_prompts": 2,
            "time_limit": 10.0,
            "seed": 0,
            "by": "highs",
        },
    ),
    "highs": (ba.highs, {"values_PN": VALUES, "costs_P": None, "budget": BUDGET}),
    "ortools": (ba.ortools, {"values_PN": VALUES, "costs_P": None, "budget": BUDGET}),
    "check_ids": (partial(ids.check_ids, name="ids"), {"ids": IDS}),
    "text_id": (ids.text_id, {"prompt": "2 + 2"}),
    "check_range": (rewards.check_range, {"reward_range": (0, 1)}),
    # policies
    "Needs": (
        ba.Needs,
        {
            "candidates": 1,
            "baseline": None,
            "scale": None,
            "weight": "rollout",
            "keep_batch": False,
            "generate": 1,
            "min_group": 2,
        },
    ),
    "Policy": (
        policy,
        {
            "name": "mine",
            "decide": lambda view: np.zeros(0),
            "estimator": ba.BetaEstimator(),
            "seed": 0,
            "needs": ba.Needs(),
            "keep": None,
            "memory": None,
        },
    ),
    "Policy.begin": (
        _begin,
        {"ids_P": ["a", "b", "c"], "budget": BUDGET, "costs_P": [1.0, 2, 3], "domains_P": ["x", "y", "y"]},
    ),
    "Policy.begin, tokens": (_begin, {"ids_P": ["a", "b", "c"], "budget": TOKENS, "costs_P": [1.0, 2, 3]}),
    "Policy.allocate": (
        ba.thompson().allocate,
        {"ids_P": ["a", "b"], "budget": BUDGET, "costs_P": None, "domains_P": None},
    ),
    "Policy.observe": (
        lambda **given: ba.adaptive().observe(**given),
        {"ids_R": IDS, "rewards_R": REWARDS, "success_R": REWARDS},
    ),
    "Policy.belief": (ba.adaptive().belief, {"ids_P": IDS}),
    "Policy.cold": (ba.adaptive().cold, {"ids_P": IDS}),
    "Policy.load_state_dict": (
        lambda **given: ba.adaptive().load_state_dict(**given),
        {"state": ba.adaptive().state_dict()},
    ),
    "Step.observe": (
        _observe_step,
        {"ids_R": ["a", "b"], "rewards_R": [0.0, 1], "success_R": [0.0, 1], "hinted": False},
    ),
    "Bounds": (
        _resolve,
        {
            "candidates": "all",
            "floor": 0,
            "cap": None,
            "min_group": 2,
            "quantum": 1,
            "rollouts": 32,
            "prompts": 8,
            "group": 4,
        },
    ),
    "Bounds.offer": (_offer, {"batch_P": ["a"], "pool_P": ["a", "b", "c"], "seed": 0, "step": 0}),
    "on_all_fail": (
        lambda **given: play(hints.on_all_fail(**given)),
        {"policy": ba.uniform(), "hint": lambda ids: None, "rollouts": 4, "unhinted": 1, "share": 0.25, "fewest": 2},
    ),
    "breadth_depth": (brorl.breadth_depth, {"rollouts": 64, "group": 8}),
    "lr_scale": (brorl.lr_scale, {"batch": 64, "base_batch": 8}),
    "dars_counts": (
        dars.dars_counts,
        {"successes_P": [0, 1, 2], "group": 8, "variant": "ET", "most": 32, "std": False},
    ),
    "half_width": (xrpo.half_width, {"counts_N": [1, 2], "alpha": 0.05}),
    "exploration": (xrpo.exploration, {"counts_N": [1, 2], "total": 4.0, "weight": 0.1, "bonus": "sqrt"}),
    "hardness_ranks": (e3.hardness_ranks, {"rates_P": [0.5, 1.0]}),
    "rank_shares": (e3.rank_shares, {"ranks_P": [0.5, 1.0], "rollouts": 16, "fewest": 4, "most": 12}),
    "gvm_weights": (gvm.gvm_weights, {"p_P": [0.5, 1.0], "norm_P": 1.0, "alpha": 1e-3, "beta": 2.0}),
    "rollouts_to_mix": (knapsack_rl.rollouts_to_mix, {"p_P": [0.5, 1.0], "confidence": 0.9, "most": 64}),
    "capability": (coba_rl.capability, {"p_P": [0.25, 0.5], "failure": 0.5, "kappa": 4.0}),
    "log_slopes": (cero.log_slopes, {"q_P": [0.25, 0.05], "exposure_P": [0, 64], "speed": 0.1}),
    "gradient_variance": (vip.gradient_variance, {"counts_N": [2, 3], "form": "rloo"}),
    "variance_reduction": (vip.variance_reduction, {"form": "rloo"}),
    "pvpo_route": (pvpo.pvpo_route, {"rates_P": [1.0, 0.5]}),
    "upper_bounds": (categories.upper_bounds, {"gain_C": [0.5, 0.0], "rollouts_C": [9, 0], "total": 9}),
    # downselect
    "mixed_first": (downselect.mixed_first, {"ids_R": IDS, "rewards_R": REWARDS, "rows": 4}),
    "balanced": (downselect.balanced, {"ids_R": IDS, "rewards_R": REWARDS, "rows": 4}),
    "largest_advantages": (downselect.largest_advantages, {"ids_R": IDS, "advantages_R": REWARDS, "rows": 4}),
    "top_p_variance": (downselect.top_p_variance, {"ids_R": IDS, "rewards_R": REWARDS, "share": 0.5, "rows": 4}),
    "max_variance": (downselect.max_variance, {"ids_R": IDS, "values_R": REWARDS, "rows": 4, "across": False}),
    "d3s_schedule": (downselect.d3s_schedule, {"progress": 0.5, "first": 8, "last": 16}),
    "resample_on_correct": (
        downselect.resample_on_correct,
        {
            "ids_R": IDS,
            "rewards_R": REWARDS,
            "rows": 4,
            "penalties_R": [0.0] * 6,
            "min_zero": 2,
            "min_positive": 2,
            "rng": None,
        },
    ),
    "extreme_pairs": (downselect.extreme_pairs, {"ids_R": IDS, "advantages_R": REWARDS, "rows": 4}),
    "pairwise_extremes": (downselect.pairwise_extremes, {"ids_R": IDS, "advantages_R": REWARDS, "rows": 4}),
    "weighted_resample": (
        downselect.weighted_resample,
        {"weights_J": [3.0, 0, 1], "size": 4, "draws": 2, "rng": np.random.default_rng(0)},
    ),
    # costs
    "budget_partition": (tokens.budget_partition, {"n": 8, "budgets": [512, 1024]}),
    "length_caps": (
        tokens.length_caps,
        {
            "ids_P": ["a", "b"],
            "ids_R": IDS,
            "lengths_R": [10.0] * 6,
            "rewards_R": REWARDS,
            "longest": 100,
            "factor": 1.5,
            "quantile": 0.9,
            "least": 1,
            "threshold": 0.5,
        },
    ),
    "curriculum_budget": (tokens.curriculum_budget, {"step": 10, "first": 256, "decay": 0.7, "every": 150, "last": 1}),
    "TreeCost": (
        lambda **given: trees.TreeCost(**given).share,
        {"leaves": 4, "nodes": 6, "tokens": 600, "chain_tokens": 800},
    ),
    "tree_cost": (trees.tree_cost, {"parents_N": [-1, 0, 0], "tokens_N": [1, 2, 3]}),
    "regular_tree": (trees.regular_tree, {"divisions": [2, 1, 2], "segment": 512.0}),
    "tree_grpo": (trees.tree_grpo, {"trees": 2, "expand": 2, "rounds": 1, "keep": 3, "tokens": 1.0, "depth": 1}),
    "treepo": (trees.treepo, {"segment": 512, "depth": 14, "divisor": 2, "first": 8, "leaves": 16}),
    "aepo_split": (trees.aepo_split, {"k": 16, "entropy_root": 1.0, "entropy_tool": 1.0, "beta": 1.0}),
    "aepo_branch_probability": (
        trees.aepo_branch_probability,
        {"entropy_change": [0.5], "consecutive": [0], "alpha": 0.5, "gamma": 0.2, "penalty": 0.25},
    ),
    "latr_split": (trees.latr_split, {"rollouts": 8, "step": 10, "schedule": {0: 1.0, 10: 0.5}}),
    "Horizon": (pacing.Horizon, {"rollouts": 40, "steps": 4, "low": 0, "high": 20, "quantum": 1}),
    "Horizon.bounds": (HORIZON.bounds, {"step": 1, "spent": 10}),
    "Horizon.plan": (HORIZON.plan, {"rule": lambda step, spent: 10}),
    "Horizon.fit": (HORIZON.fit, {"wish": 10, "step": 1, "spent": 10}),
    "constant": (pacing.constant, {"horizon": HORIZON, "step": 1, "spent": 10}),
    "phases": (pacing.phases, {"horizon": HORIZON, "parts": PARTS, "step": 1, "spent": 10}),
    "DualPrice": (pacing.DualPrice, {"price": 0.5, "scale": 1.0}),
    "DualPrice.demand": (partial(_price, "demand"), {"gains_R": [0.5]}),
    "DualPrice.after": (partial(_price, "after"), {"demand": 20, "horizon": HORIZON}),
    "Threshold": (lambda **given: pacing.Threshold(**given).ratio, {"lowest": 0.1, "highest": 1.0}),
    "Threshold.psi": (partial(_threshold, "psi"), {"share": 0.5}),
    "Threshold.demand": (partial(_threshold, "demand"), {"gains_R": [0.5], "spent": 10, "rollouts": 100}),
    "discounted_ucb": (
        lambda **given: bandits.discounted_ucb(**given).choose(),
        {"arms": [1, 2], "discount": 0.9, "xi": 0.6, "bound": 1.0},
    ),
    "steps_to_see_fall": (mixture.steps_to_see_fall, {"fall": 0.2, "probes": 5, "solved": 0.9, "miss": 0.05}),
    "Mixture": (mixture.Mixture, {"rule": "learn", "probe": 0.02}),
    "simulate, mixture": (
        lambda **given: next(simulation.simulate("adaptive", testing.three_kinds(6), 16, 1, prompts=2, **given)),
        {"domain": dict.fromkeys(range(5), "a") | {5: "b"}, "quotas": {"a": (0.2, 0.9)}, "mixture": "learn"},
    ),
    "sliding_window_ucb": (
        lambda **given: bandits.sliding_window_ucb(**given).choose(),
        {"arms": [1, 2], "window": 3, "xi": 0.6, "bound": 1.0},
    ),
    "discounted_thompson": (
        lambda **given: bandits.discounted_thompson(**given).choose(),
        {"arms": [1, 2], "discount": 0.9, "prior": (1.0, 1.0), "seed": 0},
    ),
    "Bandit.observe": (lambda **given: bandits.discounted_ucb([1, 2]).observe(**given), {"arm": 1, "reward": 0.5}),
    "Bandit.load_state_dict": (
        lambda **given: bandits.discounted_ucb([1, 2]).load_state_dict(**given),
        {"state": bandits.discounted_ucb([1, 2]).state_dict()},
    ),
    # offline
    "comparisons": (
        comparison.comparisons,
        {
            "policies": {"uniform": ba.uniform()},
            "world": LOG,
            "budget": 12,
            "steps": 2,
            "seeds": [0],
            "prompts": 3,
            "workers": 1,
            "progress": None,
        },
    ),
    "interval": (intervals.interval, {"values_S": [1.0, 2, 3], "level": 0.95}),
    "stratified_interval": (intervals.stratified_interval, {"samples": [[1.0, 2, 3], [4.0, 6]], "level": 0.95}),
    "one_step_value": (
        one_step_value.one_step_value,
        {
            "policy": ba.uniform(),
            "ledger": LOG,
            "budget": 12,
            "candidates": 1,
            "pool": range(6),
            "inclusion": "epochs",
            "estimate": "direct",
            "model": None,
            "skip": 0,
        },
    ),
    "simulate": (
        simulation.simulate,
        {
            "policy": ba.uniform(),
            "world": WORLD(6),
            "budget": 16,
            "steps": 2,
            "prompts": 4,
            "candidates": 1,
            "baseline": "group",
            "scale": "none",
            "weight": "rollout",
            "reward": np.sqrt,
        },
    ),
    "Task": (
        _task,
        {
            "skills": ((0, 1, 0.5), (1, 2, 0.5)),
            "coins": (0.5,),
            "per_skill": 4,
            "held_out": 2,
            "dims": 8,
            "own": 0.018,
            "doubt": 0.25,
            "noise": 0.1,
            "offset": 1.0,
            "other": 0.005,
        },
    ),
    "Learner": (
        worlds.Learner,
        {"task": worlds.Task(((0, 1, 0.5), (1, 2, 0.5)), per_skill=4, held_out=2), "rate": 3e-4, "seed": 0},
    ),
    "Learner.rollout": (ba.Learner().rollout, {"ids_R": [0, 1]}),
    "Learner.rates": (ba.Learner().rates, {"ids_P": [0, 1]}),
    "Learner.gradient": (_gradient, {"advantages_R": [0.0, 1]}),
    "Replay": (REPLAY, {"ledger": LOG, "seed": 0}),
    "Replay.again": (REPLAY(LOG).again, {"seed": 0}),
    "Replay.rollout": (lambda **given: REPLAY(LOG).rollout(**given), {"ids_R": [0, 1]}),
    "Replay.rates": (REPLAY(LOG).rates, {"ids_P": [0, 1], "back": 1, "ahead": 1}),
    "mixed_within": (offpolicy.mixed_within, {"passed_G": [4, 1], "rollouts_G": 8, "counts_G": 4}),
    "all_within": (offpolicy.all_within, {"part_G": [4, 1], "rollouts_G": 8, "counts_G": 4}),
    "horvitz_thompson": (offpolicy.horvitz_thompson, {"outcomes_P": [0.5, 1.0], "propensities_P": [0.5, 0.5]}),
    "self_normalised": (offpolicy.self_normalised, {"outcomes_P": [0.5, 1.0], "propensities_P": [0.5, 0.5]}),
    "doubly_robust": (
        offpolicy.doubly_robust,
        {"outcomes_P": [0.5, 1.0], "propensities_P": [0.5, 0.5], "model_P": [0.5, 0.5]},
    ),
    "drift": (drift.drift, {"ledger": LOG, "lag": 1}),
    "discount": (drift.discount, {"ledger": LOG, "lag": 1}),
    # testing
    "Known": (testing.Known, {"rates_SP": [[0.5, 1.0]], "seed": 0}),
    "Known.rollout": (WORLD(6).rollout, {"ids_R": [0, 1]}),
    "three_kinds": (testing.three_kinds, {"prompts": 6, "seed": 0}),
    "rising": (testing.rising, {"prompts": 6, "steps": 4, "seed": 0}),
    "turning": (testing.turning, {"prompts": 6, "steps": 4, "seed": 0}),
    "log_of": (testing.log_of, {"world": WORLD(6), "steps": 3, "prompts": 2, "group": 4, "seed": 0}),
}
for method in METHODS:
    signature = inspect.signature(method.build)
    CALLS[method.name] = (
        lambda build=method.build, **given: play(build(**given)),
        {name: entry.default for name, entry in signature.parameters.items()},
    )


# Values that each argument refuses. A number or a text that is refused is in the error, as argument=value.
REFUSED: dict[str, dict[str, list[Any]]] = {
    "weighted_resample": {"weights_J": [[-1.0, 1, 1], [NAN, 1, 1]], "size": [7], "draws": [0]},
    "resample_on_correct": {
        "penalties_R": [[0, -1, 0, 0, 0, 0], [0, 0]],
        "min_zero": [-1],
        "min_positive": [1.5],
        "rows": [7],
    },
    "top_p_variance": {"share": [0]},
    "d3s_schedule": {"progress": [1.5]},
    "budget_partition": {"n": [1], "budgets": [[], [0]]},
    "length_caps": {"lengths_R": [[1, 2], [-1] * 6], "longest": [0], "quantile": [1.1], "factor": [0]},
    "curriculum_budget": {"step": [-1], "decay": [0], "every": [0], "last": [0]},
    "tree_cost": {
        "parents_N": [[0, 0, 0], [-1, 1, 0], [-2, 0, 0], [-1.0, 0.0, 0.0], []],
        "tokens_N": [[-1, 1, 1], [1]],
    },
    "regular_tree": {"divisions": [[], [2, 0]]},
    "tree_grpo": {"keep": [4]},
    "treepo": {"depth": [0]},
    "aepo_split": {"k": [0], "entropy_root": [NAN]},
    "aepo_branch_probability": {"entropy_change": [[NAN]], "consecutive": [[-1]]},
    "latr_split": {"schedule": [{5: 1.0}, {0: 1.5}], "step": [-1]},
    "Horizon": {"rollouts": [0], "steps": [0], "low": [-1]},
    "Horizon.fit": {"wish": [NAN], "step": [4]},
    "constant": {"spent": [-1]},
    "phases": {"parts": [[], [(1, 0.0)]]},
    "DualPrice": {"price": [-1], "scale": [0]},
    "DualPrice.demand": {"gains_R": [[NAN]]},
    "Threshold": {"lowest": [0], "highest": [0.05]},
    "Threshold.psi": {"share": [1.1]},
    "discounted_ucb": {"arms": [[], [1, 1]], "discount": [0], "xi": [-1], "bound": [2]},
    "sliding_window_ucb": {"window": [0]},
    "discounted_thompson": {"discount": [1.5], "prior": [(0, 1)], "seed": [-1]},
    "Bandit.observe": {"arm": [3], "reward": [1.5, NAN]},
    "comparisons": {
        "policies": [{}],
        "budget": [0],
        "steps": [0],
        "seeds": [[], [1, 1], [-1]],
        "prompts": [99],
        "workers": [0],
    },
    "interval": {"values_S": [np.zeros((2, 2)), ["a", "b"]], "level": [95]},
    "stratified_interval": {"samples": [[], [1.0, 2.0], 3]},
    "one_step_value": {"budget": [0], "candidates": [0], "inclusion": ["often"], "estimate": ["best"], "skip": [12]},
    "simulate": {"steps": [0], "prompts": [7], "candidates": [0, "some"], "baseline": ["mean"]},
    "Task": {
        "own": [0.0],
        "other": [1.0],
        "per_skill": [0],
        "held_out": [0],
        "dims": [0],
        "noise": [1.1],
        "doubt": [-1.0],
        "coins": [(1.5,)],
    },
    "Learner": {"rate": [0]},
    "Replay": {"seed": [-1, 0.5]},
    "Replay.again": {"seed": [True]},
    "Replay.rollout": {"ids_R": [["z"]]},
    "Replay.rates": {"ids_P": [["z"]], "back": [-1], "ahead": [-2]},
    "horvitz_thompson": {"outcomes_P": [[1, 1, 1]], "propensities_P": [[0, 1], [NAN, 1], [1.5, 1]]},
    "self_normalised": {"propensities_P": [[1, 1.5], [1, NAN]]},
    "doubly_robust": {"propensities_P": [[1, NAN]], "model_P": [[1], [1, NAN]]},
    "drift": {"lag": [0]},
    "discount": {"lag": [0]},
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_out_of_range_is_refused_by_the_name_of_its_argument(name):
    call, good = CALLS[name]
    for argument, values in REFUSED[name].items():
        for value in values:
            with pytest.raises(BudgetallocError) as caught:
                drain(call(**good | {argument: value}))
            plain = isinstance(value, (int, float, str))
            assert (f"{argument}={value!r}" if plain else argument) in str(caught.value), str(caught.value)


def outcome(call: Callable[..., Any], given: dict[str, Any]) -> str | None:
    """What is wrong with how this call ended, or None."""
    try:
        with bounded(), np.errstate(all="ignore"):
            drain(call(**given))
    except BudgetallocError:
        return None
    except TooMuchWork:
        return f"more than {LINES} lines of work"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:90]}"
    return None


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore")
def test_a_bad_value_of_any_argument_is_an_error_that_budgetalloc_raises_on_purpose(name):
    call, good = CALLS[name]
    drain(call(**good))  # the table itself is right
    wrong = [
        f"{name}({argument}={shown}): {what}"
        for argument in good
        for shown, value in BAD.items()
        if (what := outcome(call, good | {argument: value})) is not None
    ]
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.filterwarnings("ignore")
def test_the_error_names_the_argument_that_is_of_a_wrong_type():
    elsewhere = {
        ("comparisons", "world"),
        ("all_within", "part_G"),
        ("Known.rollout", "ids_R"),
    }  # as their use names them
    unnamed = []
    for name, (call, good) in CALLS.items():
        for argument in good:
            try:
                drain(call(**good | {argument: object()}))
            except BudgetallocError as error:
                if argument not in str(error) and (name, argument) not in elsewhere:
                    unnamed.append(f"{name}({argument}): {error}")
    assert not unnamed, "\n" + "\n".join(unnamed)

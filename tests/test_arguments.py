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
from budgetalloc.contrib import mixture, pacing
from budgetalloc.errors import BudgetallocError
from budgetalloc.methods import (
    downselect,
    hints,
)
from budgetalloc.methods.table import METHODS
from budgetalloc.offline import comparison, intervals, replay, simulation, worlds
from budgetalloc.policies import interface, retries, rounds
from budgetalloc.solvers.proportional import systematic

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
VALUES_OF_TOKENS = ba.mixed_group(BELIEF, TOKENS.grid())
QUOTAS = ba.Budget(12, quotas={"y": (2, 4)})
WORLD = testing.three_kinds
REPLAY = replay.Replay


Row = tuple[str, tuple[Callable[..., Any], dict[str, Any]]]


def row(
    function: Callable[..., Any],
    *,
    called: str = "",
    of: Callable[[], Any] | None = None,
    then: Callable[[Any], Any] = lambda result: result,
    **good: Any,
) -> Row:
    """A function with a good value for each of its arguments: those that are left out have their defaults.

    `of` makes what a method is called on, anew for each call; `then` uses the result, which must not fail later.
    """
    bound = (lambda: partial(function, of())) if of else (lambda: function)
    parameters = inspect.signature(bound()).parameters.values()
    defaults = {x.name: x.default for x in parameters if x.default is not x.empty}
    return called or function.__qualname__, (lambda **given: then(bound()(**given)), defaults | good)


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
    memory = Memory(columns, lambda memory, seen: None, numbers)
    memory.learn(["a"], np.array([1.0]), np.array([1.0]))


def begin(policy: ba.Policy, ids_P: Any, budget: Any, costs_P: Any, domains_P: Any) -> None:
    policy.begin(ids_P, budget, costs_P, domains_P).request()


HORIZON = pacing.Horizon(rollouts=40, steps=4, low=0)
SKILLS = ((0, 1, 0.5), (1, 2, 0.5))
ALL = ba.Needs(candidates="all")
THREE: dict[str, Any] = {"ids_P": ["a", "b", "c"], "costs_P": [1.0, 2, 3]}

ROWS = [
    # the core
    row(ba.Budget, then=lambda budget: budget.check(3), rollouts=12, cap=8),
    row(ba.Budget.check, of=lambda: BUDGET, num_prompts=3),
    row(ba.Budget.grid, of=lambda: BUDGET, limit=4),
    row(ba.Beta, alpha_P=[1.0, 2], beta_P=[1.0, 2]),
    row(ba.Point, p_P=[0.5, 1]),
    row(ba.Beta.moment, of=lambda: BELIEF, i=1, j=2),
    row(ba.Beta.tilt, of=lambda: BELIEF, i=1, j=2),
    row(ba.Beta.sample, of=lambda: BELIEF, rng=np.random.default_rng(0)),
    row(ba.Beta.take, of=lambda: BELIEF, index=[0, 1]),
    row(ba.Beta.all_pass, of=lambda: BELIEF, counts_N=[0, 1, 2]),
    row(ba.Beta.all_fail, of=lambda: BELIEF, counts_N=[0, 1, 2]),
    row(ba.Point.moment, of=lambda: ba.Point([0.5]), i=1, j=2),
    row(ba.Point.all_pass, of=lambda: ba.Point([0.5]), counts_N=[0, 1, 2]),
    row(ba.BetaEstimator, discount=0.9, idle=0.9),
    row(ba.BetaEstimator.observe, of=ba.BetaEstimator, ids_R=IDS, success_R=REWARDS),
    row(ba.BetaEstimator.belief, of=ba.BetaEstimator, ids_P=IDS),
    row(ba.BetaEstimator.cold, of=ba.BetaEstimator, ids_P=IDS),
    row(ba.BetaEstimator.load_state_dict, of=ba.BetaEstimator, state=ba.BetaEstimator().state_dict()),
    row(_memory, called="Memory", columns={"x": 0.0}, numbers={"n": 1.0}),
    *(
        row(value, belief=BELIEF, counts_N=[0, 2, 4])
        for value in (ba.mixed_group, ba.pass_at_n, ba.variance, ba.success_gain)
    ),
    row(ba.group_advantages, rewards_R=REWARDS, ids_R=IDS, baseline="loo", scale="batch", weight="prompt"),
    row(
        partial(ba.group_advantages, baseline="posterior"),
        called="group_advantages, posterior",
        **{"rewards_R": [0.0, 1, 1], "ids_R": ["a", "a", "b"], "belief_R": BELIEF},
    ),
    row(ba.greedy, values_PN=VALUES, costs_P=None, budget=BUDGET),
    row(ba.greedy, called="greedy, quotas", values_PN=VALUES, costs_P=None, budget=QUOTAS, domains_P=["x", "x", "y"]),
    row(ba.greedy, called="greedy, tokens", values_PN=VALUES_OF_TOKENS, costs_P=[10.0, 20, 30], budget=TOKENS),
    row(ba.proportional, weights_P=[1.0, 2, 3], costs_P=None, budget=LOOSE),
    row(systematic, weights_P=[1.0, 2, 3], budget=LOOSE, rng=np.random.default_rng(0)),
    row(
        ba.certify,
        values_PN=ba.mixed_group(BELIEF, LOOSE.grid()),
        costs_P=None,
        budget=LOOSE,
        domains_P=["x", "x", "y"],
        max_prompts=2,
    ),
    row(ba.highs, values_PN=VALUES, costs_P=None, budget=BUDGET),
    row(ba.ortools, values_PN=VALUES, costs_P=None, budget=BUDGET),
    row(partial(ids.check_ids, name="ids"), called="check_ids", ids=IDS),
    row(ids.text_id, prompt="2 + 2"),
    row(rewards.check_range, reward_range=(0, 1)),
    # policies
    row(ba.Needs),
    row(ba.Policy, name="mine", decide=lambda view: np.zeros(0), estimator=ba.BetaEstimator()),
    row(begin, called="Policy.begin", of=ba.knapsack, budget=BUDGET, domains_P=["x", "y", "y"], **THREE),
    row(begin, called="Policy.begin, tokens", of=ba.knapsack, budget=TOKENS, domains_P=None, **THREE),
    row(ba.Policy.allocate, of=ba.thompson, ids_P=["a", "b"], budget=BUDGET),
    row(ba.Policy.observe, of=ba.adaptive, ids_R=IDS, rewards_R=REWARDS, success_R=REWARDS),
    row(ba.Policy.belief, of=ba.adaptive, ids_P=IDS),
    row(ba.Policy.cold, of=ba.adaptive, ids_P=IDS),
    row(ba.Policy.load_state_dict, of=ba.adaptive, state=ba.adaptive().state_dict()),
    row(
        _observe_step,
        called="Step.observe",
        ids_R=["a", "b"],
        rewards_R=[0.0, 1],
        success_R=[0.0, 1],
        hinted=False,
    ),
    row(partial(interface.Bounds.resolve, ALL), called="Bounds", then=lambda found: found.budget(32, 8, 4)),
    row(interface.Bounds.budget, of=lambda: interface.Bounds.resolve(ALL), rollouts=32, prompts=8, group=4),
    row(rounds.growing, then=play, policy=ba.uniform(), first=2, most=4, rounds=3),
    row(retries.retrying, then=play, policy=ba.uniform(), most=4),
    row(hints.on_all_fail, then=play, policy=ba.uniform(), hint=lambda ids: None, rollouts=4),
    # downselect
    row(downselect.mixed_first, ids_R=IDS, rewards_R=REWARDS, rows=4),
    row(downselect.balanced, ids_R=IDS, rewards_R=REWARDS, rows=4),
    row(downselect.largest_advantages, ids_R=IDS, advantages_R=REWARDS, rows=4),
    row(downselect.top_p_variance, ids_R=IDS, rewards_R=REWARDS, share=0.5, rows=4),
    row(downselect.max_variance, ids_R=IDS, values_R=REWARDS, rows=4),
    row(downselect.resample_on_correct, ids_R=IDS, rewards_R=REWARDS, rows=4, penalties_R=[0.0] * 6),
    row(downselect.extreme_pairs, ids_R=IDS, advantages_R=REWARDS, rows=4),
    row(downselect.pairwise_extremes, ids_R=IDS, advantages_R=REWARDS, rows=4),
    row(downselect.weighted_resample, weights_J=[3.0, 0, 1], size=4, draws=2, rng=np.random.default_rng(0)),
    # costs
    row(pacing.Horizon, rollouts=40, steps=4, low=0, high=20, parts=[(2, 1.0), (2, 2.0)]),
    row(pacing.Horizon.__call__, of=lambda: HORIZON, step=1, spent=10),
    row(mixture.Mixture),
    row(
        partial(simulation.simulate, "adaptive", WORLD(6), 16, 1, prompts=2),
        called="simulate, mixture",
        then=next,
        domain=dict.fromkeys(range(5), "a") | {5: "b"},
        quotas={"a": (0.2, 0.9)},
        mixture="learn",
    ),
    # offline
    row(
        comparison.comparisons,
        policies={"uniform": ba.uniform()},
        world=LOG,
        budget=12,
        steps=2,
        seeds=[0],
        prompts=3,
        workers=1,
    ),
    row(intervals.interval, values_S=[1.0, 2, 3]),
    row(intervals.stratified_interval, samples=[[1.0, 2, 3], [4.0, 6]]),
    row(
        simulation.simulate,
        policy=ba.uniform(),
        world=WORLD(6),
        budget=16,
        steps=2,
        prompts=4,
        baseline="group",
        scale="none",
        reward=np.sqrt,
    ),
    row(
        worlds.Task,
        then=lambda task: worlds.Learner(task).rollout([0]),
        skills=SKILLS,
        coins=(0.5,),
        per_skill=4,
        held_out=2,
    ),
    row(worlds.Learner, task=worlds.Task(SKILLS, per_skill=4, held_out=2)),
    row(ba.Learner.rollout, of=ba.Learner, ids_R=[0, 1]),
    row(ba.Learner.rates, of=ba.Learner, ids_P=[0, 1]),
    row(_gradient, called="Learner.gradient", advantages_R=[0.0, 1]),
    row(REPLAY, ledger=LOG),
    row(REPLAY.again, of=lambda: REPLAY(LOG), seed=0),
    row(REPLAY.rollout, of=lambda: REPLAY(LOG), ids_R=[0, 1]),
    row(REPLAY.rates, of=lambda: REPLAY(LOG), ids_P=[0, 1]),
    # testing
    row(testing.Known, rates_SP=[[0.5, 1.0]]),
    row(testing.Known.rollout, of=lambda: WORLD(6), ids_R=[0, 1]),
    row(testing.three_kinds, prompts=6),
    row(testing.rising, prompts=6, steps=4),
    row(testing.turning, prompts=6, steps=4),
    row(testing.log_of, world=WORLD(6), steps=3, prompts=2, group=4),
    *(row(method.build, called=method.name, then=play) for method in METHODS),
]
CALLS = dict(ROWS)


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
    "growing": {"first": [0], "most": [1], "rounds": [1]},
    "on_all_fail": {"rollouts": [0], "unhinted": [4], "share": [1], "fewest": [0]},
    "Horizon": {"rollouts": [0], "steps": [0], "low": [-1], "parts": [[], [(1, 0.0)]]},
    "Horizon.__call__": {"spent": [-1], "step": [4]},
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
    "Replay.rates": {"ids_P": [["z"]]},
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
        ("Known.rollout", "ids_R"),
    }  # as their use names them
    elsewhere |= {(rule, "success_R") for rule in ("balanced", "resample_on_correct")}  # checked as rewards are
    unnamed = []
    for name, (call, good) in CALLS.items():
        for argument in good:
            try:
                drain(call(**good | {argument: object()}))
            except BudgetallocError as error:
                if argument not in str(error) and (name, argument) not in elsewhere:
                    unnamed.append(f"{name}({argument}): {error}")
    assert not unnamed, "\n" + "\n".join(unnamed)

"""What an asynchronous trainer trains on if difficult prompts take longer: against the plan, and the learning curve.

    python benchmarks/admission.py    # about a minute

A simulated engine generates 256 rollouts at once. The logarithm of their latency has the deviation 0.5 and a given
correlation with the difficulty of its prompt. The trainer takes batches of 64 rollouts and may train on rollouts that
are at most 4 optimizer steps old, as by default in TRL. Two orders are compared:

- first come: a group is queued when its last rollout has ended, and dropped if it is too old when it is taken. TRL's
  own worker and verl's asynchronous mode do so.
- planned: the order of the plans (`contrib.admission`), by the code that `AdaptiveRolloutWorker` uses.
"""

import argparse
import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import chi2, norm

import budgetalloc as ba
from budgetalloc.contrib.admission import Admission, Plan, most_ahead
from budgetalloc.training.session import Session

SLOTS, BATCH, GROUP, STALENESS = 256, 64, 8, 4
STEP = 0.2  # seconds of an optimizer step; generating its rollouts takes 0.28 s if all slots are busy
CORRELATIONS = (-0.9, 0.0, 0.9)
SPREAD, LIMIT = 0.5, 3.0  # deviation of log seconds, whose mean is 0, and the time-out
CLASSES = 10
_Z = norm.ppf((np.arange(CLASSES) + 0.5) / CLASSES)
DIFFICULTY = (_Z / _Z.std()).tolist()  # of each class: a random class has deviation 1


@dataclass
class Engine:
    """Generates rollouts, `SLOTS` at once, in the order of submission.

    Args:
        correlation: Of log latency and difficulty, in [-1, 1].
        timeout: Seconds after which a rollout is given up.
        seed: Seeds the latencies.
    """

    correlation: float
    timeout: float = np.inf
    seed: int = 0
    now: float = 0.0
    waiting: deque = field(default_factory=deque)
    running: list = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng, self._count = np.random.default_rng(self.seed), 0

    def submit(self, key, difficulty: float) -> None:
        """Asks for a rollout; `difficulty` is standard normal over the prompts."""
        noise = math.sqrt(1 - self.correlation**2) * self._rng.standard_normal()
        self.waiting.append((key, math.exp(SPREAD * (self.correlation * difficulty + noise))))
        self._fill()

    def _fill(self) -> None:
        while self.waiting and len(self.running) < SLOTS:
            key, latency = self.waiting.popleft()
            self._count += 1
            ends = self.now + min(latency, self.timeout)
            heapq.heappush(self.running, (ends, self._count, key, latency > self.timeout))

    def answer(self):
        """The next rollout that ends: its key, and whether it was given up."""
        self.now, _, key, lost = heapq.heappop(self.running)
        self._fill()
        return key, lost


def plans(seed: int) -> Iterator[np.ndarray]:
    """The difficulty class of each group of a plan: all classes are planned equally often."""
    rng = np.random.default_rng([seed, 1])
    while True:
        yield rng.integers(CLASSES, size=BATCH // GROUP)


def first_come(engine: Engine, rollouts: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rollouts planned and trained of each class, shape (1, CLASSES) both, until so many were trained."""
    planned, trained = np.zeros((2, CLASSES), dtype=int)
    left, born, classes = {}, {}, {}
    queue: deque = deque()
    version, free, collected, groups = 0, 0.0, 0, 0
    stream = plans(seed)
    while trained.sum() < rollouts:
        while len(engine.running) + len(engine.waiting) < STALENESS * BATCH:  # TRL's max_inflight_tasks
            for of in next(stream).tolist():
                left[groups], born[groups], classes[groups] = GROUP, version, of
                planned[of] += GROUP
                for _ in range(GROUP):
                    engine.submit(groups, DIFFICULTY[of])
                groups += 1
        group, _ = engine.answer()
        left[group] -= 1
        if not left[group]:
            queue.append(group)
        while queue and engine.now >= free:
            group = queue.popleft()
            if version - born[group] > STALENESS:
                continue
            trained[classes[group]] += GROUP
            collected += GROUP
            if collected >= BATCH:
                collected, version, free = 0, version + 1, engine.now + STEP
    return planned[None], trained[None]


def in_order(engine: Engine, rollouts: int, seed: int = 0, most: int = SLOTS):
    """As `first_come`, in the order of the plans, of which at most `most` are generated at once. Returns rollouts by
    batch, shape (S, CLASSES) both, and the age of each batch when it is trained, shape (S,)."""
    planned, trained, total = [], [], 0
    admission: Admission[Plan[int]] = Admission()
    about: dict[int, int] = {}  # the version at the beginning of each plan
    queue: deque = deque()
    version, free, ages = 0, 0.0, []
    stream, ahead = plans(seed), most_ahead(STALENESS, BATCH, BATCH)
    while total < rollouts:
        while len(admission) < most and admission.may_begin(BATCH * len(queue), ahead):
            plan, of_G = Plan[int](BATCH), next(stream)
            about[id(plan)] = version
            planned.append(GROUP * np.bincount(of_G, minlength=CLASSES))
            for number, of in zip(plan.ask(BATCH), of_G.repeat(GROUP).tolist(), strict=True):
                engine.submit((plan, number, of), DIFFICULTY[of])
            admission.begin(plan)
        if engine.running:
            (plan, number, of), lost = engine.answer()
            plan.take(number, None if lost else of)
        else:  # all wait for the trainer
            engine.now = max(engine.now, free)
        while (plan := admission.next()) is not None:
            admission.admit()
            queue.append(plan)
        while queue and engine.now >= free:
            plan = queue.popleft()
            ages.append(version - about.pop(id(plan)))
            trained.append(np.bincount(plan.came(), minlength=CLASSES))
            total += len(plan.came())
            version, free = version + 1, engine.now + STEP
    return np.array(planned[: len(trained)]), np.array(trained), np.array(ages)


def chi_square(planned: np.ndarray, trained: np.ndarray) -> tuple[float, float]:
    """The statistic of the trained counts against the planned shares, and its p-value.

    >>> chi_square(np.array([10, 10]), np.array([5, 5]))
    (0.0, 1.0)
    """
    expected = planned / planned.sum() * trained.sum()
    statistic = float(((trained - expected) ** 2 / expected).sum())
    return statistic, float(chi2.sf(statistic, len(planned) - 1))


class LateLearner(ba.Learner):
    """A world whose rollouts are trained on later than they are generated, with the ratio of PPO, clipped at 0.2."""

    def generate(self, ids_R):
        """Rewards of rollouts, and what `train` needs."""
        rewards_R = self.rollout(ids_R)
        rows = self._rows.pop()
        return rewards_R, (*rows, self._chances(*rows))

    def _chances(self, at_R, strategy_R):
        return self.probabilities(at_R.tolist())[np.arange(len(at_R)), strategy_R]

    def train(self, generated, kept_R, advantages_R) -> None:
        """One optimizer step on these rollouts."""
        at_R, strategy_R, before_R = (column[kept_R] for column in generated)
        ratio_R = self._chances(at_R, strategy_R) / before_R
        clipped_R = np.where(advantages_R > 0, ratio_R > 1.2, ratio_R < 0.8)
        self._rows = [(at_R, strategy_R)]
        self.learn(np.where(clipped_R, 0.0, advantages_R * ratio_R))


def learn(correlation: float, steps: int, seed: int, *, timeout: float = np.inf, policy: Callable = ba.adaptive):
    """The held-out success after each optimizer step, and the session's metrics, in the order of the plans."""
    world, engine = LateLearner(seed=seed), Engine(correlation, timeout, seed)
    rate_P = world.rates(world.ids)
    difficulty_P = norm.ppf((np.argsort(np.argsort(-rate_P)) + 0.5) / len(rate_P))
    session = Session(policy(seed=seed), ["reward"], pool=world.ids, quiet=True)
    admission: Admission[Plan[int]] = Admission()
    rows_of, curve, lost = {}, [], 0
    ready: deque = deque()
    free, ahead = 0.0, most_ahead(STALENESS, BATCH, BATCH)
    while len(curve) < steps:
        while admission.may_begin(BATCH * len(ready), ahead):
            plan = Plan[int](BATCH)
            session.begin([], BATCH, GROUP)
            ids_R = session.request()
            session.suspend()
            rewards_R, rows = world.generate(ids_R)  # by the model of now
            rows_of[id(plan)] = ids_R, rewards_R, rows
            for number in plan.ask(len(ids_R)):
                engine.submit((plan, number), difficulty_P[ids_R[number]])
            admission.begin(plan)
        if engine.running:
            (plan, number), gone = engine.answer()
            plan.take(number, None if gone else number)
        else:
            engine.now = max(engine.now, free)
        while (plan := admission.next()) is not None:
            admission.admit()
            ids_R, rewards_R, rows = rows_of.pop(id(plan))
            kept_R = np.array(plan.came(), dtype=int)
            session.resume()
            session.observe([ids_R[at] for at in kept_R], rewards_R[kept_R], np.ones(len(kept_R)))
            assert not session.request()
            ended = session.end()
            lost += int(ended.metrics.get("lost", 0))
            ready.append((rows, kept_R, ended.advantages_R))
        while ready and engine.now >= free:
            world.train(*ready.popleft())
            free = engine.now + STEP
            curve.append(world.success())
    return np.array(curve[:steps]), lost


ORDERS = {
    "first come": (first_come, np.inf),
    "one plan at a time": (lambda engine, rollouts: in_order(engine, rollouts, most=1), np.inf),
    "planned": (in_order, np.inf),
    f"planned, time-out {LIMIT:g} s": (in_order, LIMIT),
}


def compositions(rollouts: int, labels: Iterable[str] = tuple(ORDERS)) -> Iterator[str]:
    """The rows of the first table."""
    yield "| order | correlation | p | easiest tenth | hardest tenth | lost | rollouts/s |"
    yield "|---|---|---|---|---|---|---|"
    for label in labels:
        run, timeout = ORDERS[label]
        for correlation in CORRELATIONS:
            engine = Engine(correlation, timeout)
            planned, trained, *_ = (x.sum(axis=0) for x in run(engine, rollouts))
            unit = GROUP if label == "first come" else 1  # what is lost at once
            _, p = chi_square(planned / unit, trained / unit)
            share = trained / trained.sum() * planned.sum() / planned
            lost = 1 - trained.sum() / planned.sum()
            yield (
                f"| {label} | {correlation:g} | {p:.2g} | {share[0]:.2f} | {share[-1]:.2f} | {lost:.2%} | "
                f"{trained.sum() / engine.now:.0f} |"
            )


def curves(steps: int, seeds: int) -> Iterator[str]:
    """The rows of the second table."""
    yield "| correlation | success at the end | mean over the run |"
    yield "|---|---|---|"
    for correlation in CORRELATIONS:
        runs = np.array([learn(correlation, steps, seed)[0] for seed in range(seeds)])
        cells = [f"{x.mean():.3f} ± {x.std(ddof=1) / seeds**0.5:.3f}" for x in (runs[:, -1], runs.mean(axis=1))]
        yield f"| {correlation:g} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rollouts", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=16)
    given = parser.parse_args()
    for line in (*compositions(given.rollouts), "", *curves(given.steps, given.seeds)):
        print(line, flush=True)


if __name__ == "__main__":
    main()

"""A policy that watches a run of another policy, learns from its rollouts, and changes nothing.

It answers what would change if it were attached. At the end of each step, from its own beliefs
before the step, it computes the counts that it would have requested and the advantages that it
would have given to the run's rollouts.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import EQUAL
from budgetalloc.beliefs.tracking import TrackingEstimator
from budgetalloc.budget import Budget
from budgetalloc.errors import InputError, prefix_errors, short_repr
from budgetalloc.policies import Step
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.metrics import of_advantages
from budgetalloc.training.options import Options
from budgetalloc.training.parts import Host, Part, Plan
from budgetalloc.training.policy_like import PolicyLike, resolve_policy
from budgetalloc.training.prompts import Prompts
from budgetalloc.training.session import Session

logger = logging.getLogger(__name__)
_PREFIX = "shadow/"
_KEPT = ("brier", "fallback")  # metrics of its own session that are logged


class Shadow(Part):
    """A policy that watches a run. It has a session of its own, from which nothing is generated.

    It learns from the run's rollouts, and metrics under `shadow/` say what it would have drawn and
    compare the advantages that it would have given. The run's options apply to it, without `hint`,
    `buffer`, a cost of seconds, and costs that it does not weigh. A policy that decides in rounds
    is shadowed in its first round only, because later rounds depend on rollouts that nobody
    generated. An error in the shadow is counted in `shadow/errors` and logged once; the run goes
    on.

    Args:
        policy: The policy that watches, the name of a method, or a function that builds a policy.

    Raises:
        InputError: it is no policy. `attach` raises if it is the run's own, or could not be
            attached in its place.

    >>> session = Session("uniform", ["reward"], shadow="adaptive", pool=["a", "b", "c"],
    ...     metrics="all")
    >>> session.begin(["a", "b"], rollouts=4, group=2)
    >>> session.observe(session.request(), [1, 0, 1, 1], lengths_R=[5, 7, 9, 3])
    >>> metrics = session.end().metrics
    >>> metrics["advantage/frac_nonzero"], metrics["shadow/advantage/frac_nonzero"]
    (0.5, 1.0)
    """

    def __init__(self, policy: PolicyLike) -> None:
        try:
            self.policy = resolve_policy(policy, "shadow")
        except InputError as error:
            named = str(error).startswith("shadow=")
            message = str(error) if named else f"shadow={short_repr(policy)}: {error}"
            raise InputError(message, argument="shadow") from error
        self.errors = 0
        """Errors so far. After one, the shadow may have missed a step."""
        self.session: Session
        self._run: Session
        self._prompts: Prompts | None = None
        self._offer: tuple[Sequence[Id], int, int] | None = None

    def attach(self, session: Session, host: Host) -> None:
        run = session
        if self.policy is run.policy:
            raise InputError(
                f"shadow={self.policy}",
                "is the run's own policy, which would learn everything twice. Build another one.",
            )
        left_out = {"hint", "buffer", "shadow"}
        if not self.policy.needs.costs or run.options.cost == "seconds":
            left_out |= {"cost", "cost_per_step"}
        given = {
            name: value
            for name, value in run.options.asked.items()
            if name not in left_out and value is not None
        }
        policy, estimator = self.policy, run.policy.estimator
        scale, scoring = run.options.trainer_scale, run.scoring
        if host.prompts is None and scale == "none" and policy.needs.scale:
            scale = "group"  # a loop of your own, as `Session` takes it
        with prefix_errors(f"shadow={policy}, as if it were attached: ", "shadow"):
            options = Options.resolve(policy.needs, scale, given)
            if host.check is not None:
                host.check(policy, options)
            if isinstance(estimator, TrackingEstimator) and estimator.features is not None:
                policy = policy.with_features(estimator.features)
            self.session = Session(
                policy, scoring.names, scoring.weights, resolved=options, quiet=True
            )
            self.session.attach(host)
        self.from_loader = options.bounds.candidates != "all"
        self._run, self._prompts = run, host.prompts

    def plan(self, plan: Plan) -> Plan:
        session, run = self.session, self._run
        session.scoring.follow(run.scoring.names, run.scoring.weights)
        if session.options.bounds.candidates != 1:
            session.pool = run.pool if self._prompts is None else self._prompts.pool
        if not plan.fixed:
            self._offer = plan.own_ids, plan.rollouts, plan.group
        return plan

    def learn(self, rollouts: Rollouts | None, step: Step) -> dict[str, float]:
        """Decides, compares, and learns from a finished step of the run.

        Returns:
            Metrics whose names begin with `shadow/`. Those of what raised an error are missing.
        """
        started, metrics = time.perf_counter(), dict[str, float]()
        if rollouts is not None and self._offer is not None:
            metrics |= self._guarded(lambda: self._decide(rollouts))
        metrics |= self._guarded(lambda: self._learn(rollouts))
        self._offer = None
        metrics |= {"errors": float(self.errors), "seconds": time.perf_counter() - started}
        return {_PREFIX + name: value for name, value in metrics.items()}

    def _decide(self, rollouts: Rollouts) -> dict[str, float]:
        """Begins the step that the policy would have had, and drops it after its first request."""
        assert self._offer is not None
        session = self.session
        session.begin(*self._offer)
        ids_R = session.request()
        metrics = compared_counts(ids_R, rollouts.ids_R)
        both = {"variance_predicted": ids_R, "variance_predicted_run": rollouts.ids_R}
        for name, chosen_R in both.items():
            if len(chosen_R):
                metrics[name] = float(np.mean(session.policy.belief(chosen_R).moment(1, 1)))
        return metrics

    def _learn(self, rollouts: Rollouts | None) -> dict[str, float]:
        """Ends a step on the run's rollouts, without those with a hint, from which beliefs do not
        learn."""
        session = self.session
        rows = np.flatnonzero(~rollouts.hinted_R) if rollouts is not None else np.zeros(0, int)
        if rollouts is None or not rows.size:
            session.policy.learn([])
            return {}
        ids_R = [rollouts.ids_R[at] for at in rows.tolist()]
        generated = Budget(len(ids_R), floor=0, min_group=1)
        session.begin_among(list(dict.fromkeys(ids_R)), generated, len(ids_R), rollouts.group)
        prompts_R = rollouts.prompt_lengths_R
        session.observe(
            ids_R,
            rollouts.scores_RF[rows],
            rollouts.lengths_R[rows],
            rewards_R=rollouts.rewards_R[rows],
            prompt_lengths_R=None if prompts_R is None else prompts_R[rows],
            costs_R={name: rollouts.reported[name][rows] for name in session.reports} or None,
        )
        ended = session.end()
        metrics = {name: ended.metrics[name] for name in _KEPT if name in ended.metrics}
        run_R = self._run.options.advantages(rollouts).values_R[rows]
        return metrics | compared_advantages(ended.advantages_R, run_R)

    def _guarded(self, part: Callable[[], dict[str, float]]) -> dict[str, float]:
        try:
            return part()
        except Exception as error:
            self._count(
                f"raised {type(error).__name__}: {error}. The run goes on; shadow/errors counts "
                "such errors."
            )
            return {}

    def _count(self, what: str) -> None:
        self.errors += 1
        if self.errors == 1 and not self._run.quiet:
            logger.warning("The shadow %s %s", self.session.policy, what)

    def state_dict(self) -> dict[str, Any]:
        """What its session has learned, under keys that begin with `shadow/`."""
        return {_PREFIX + name: value for name, value in self.session.state().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()`. If it is missing or does not fit, the shadow goes on with what
        it knows."""
        own = {
            name.removeprefix(_PREFIX): value
            for name, value in state.items()
            if name.startswith(_PREFIX)
        }
        if not own:
            if not self._run.quiet:
                logger.warning(
                    "The checkpoint was made without the shadow %s, which starts without beliefs.",
                    self.session.policy,
                )
            return
        try:
            self.session.restore(own)
        except Exception as error:
            self._count(
                f"starts without beliefs, because those of the checkpoint do not fit: {error}"
            )


def compared_counts(ids_R: Sequence[Id], run_R: Sequence[Id]) -> dict[str, float]:
    """What a policy would have drawn, compared with what a run drew, by the prompt of each rollout.

    Returns:
        `prompts`, the number of prompts requested; `frac_in_batch`, the share of the requested
        rollouts whose prompt is in the run's step; and `overlap`, the share that the two
        allocations have in common, in [0, 1].

    >>> compared_counts(["a", "a", "b", "c"], ["a", "b", "b", "b"])
    {'prompts': 3.0, 'frac_in_batch': 0.75, 'overlap': 0.5}
    """
    mine, of_run = Counter(ids_R), Counter(run_R)
    metrics = {"prompts": float(len(mine))}
    if not mine or not of_run:
        return metrics
    own, runs = len(ids_R), len(run_R)
    # in units of 1 / (own * runs)
    common = sum(min(count * runs, of_run[name] * own) for name, count in mine.items())
    in_batch = sum(count for name, count in mine.items() if name in of_run)
    return metrics | {"frac_in_batch": in_batch / own, "overlap": common / (own * runs)}


def compared_advantages(advantages_R: FloatArray, run_R: FloatArray) -> dict[str, float]:
    """The advantages that a policy would have given, compared with those of the run's policy for
    the same rollouts, shape (R,) each.

    Returns:
        The metrics of `of_advantages`; `advantage/mean` and `advantage/mean_run`, the two means;
        `advantage/rms_ratio`, the root mean square relative to the run's; `advantage/correlation`
        of the two; `advantage/frac_gained` and `frac_lost`, the shares of rollouts that only the
        policy, or only the run, gave an advantage other than 0; and `frac_both_zero`. A ratio or
        correlation that is not defined is left out.

    >>> found = compared_advantages(np.array([0.5, -0.5, 0.2, 0.0]),
    ...     np.array([1.0, -1.0, 0.0, 0.0]))
    >>> {name: round(found[f"advantage/{name}"], 3)
    ...     for name in ("rms_ratio", "correlation", "frac_gained")}
    {'rms_ratio': 0.52, 'correlation': 0.971, 'frac_gained': 0.25}
    """
    some_R, runs_R = np.abs(advantages_R) > EQUAL, np.abs(run_R) > EQUAL
    metrics = of_advantages(advantages_R) | {
        "advantage/mean": float(np.mean(advantages_R)),
        "advantage/mean_run": float(np.mean(run_R)),
        "advantage/frac_gained": float(np.mean(some_R & ~runs_R)),
        "advantage/frac_lost": float(np.mean(runs_R & ~some_R)),
        "advantage/frac_both_zero": float(np.mean(~some_R & ~runs_R)),
    }
    if (size := float(np.sqrt(np.mean(run_R**2)))) > EQUAL:
        metrics["advantage/rms_ratio"] = metrics["advantage/rms"] / size
    if np.ptp(advantages_R) > EQUAL and np.ptp(run_R) > EQUAL:
        metrics["advantage/correlation"] = float(np.corrcoef(advantages_R, run_R)[0, 1])
    return metrics

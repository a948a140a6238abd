"""A shadow: a policy that watches a run of another policy, learns from its rollouts, and changes
nothing.

It answers what would change if it were attached. At the end of each step, from its own beliefs
before the step, it computes the counts that it would have requested and the advantages that it
would have given to the run's rollouts.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from budgetalloc.beliefs.ids import Id
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.beliefs.rewards import EQUAL
from budgetalloc.beliefs.tracking import TrackingEstimator
from budgetalloc.budget import Budget
from budgetalloc.errors import InputError, shown
from budgetalloc.policies import Policy
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.metrics import of_advantages
from budgetalloc.training.options import Options
from budgetalloc.training.policy_like import PolicyLike, policy_of
from budgetalloc.training.prompts import Prompts

__all__ = [
    "Shadow",
    "compared_advantages",
    "compared_counts",
    "options_to_watch",
    "policy_to_watch",
]

logger = logging.getLogger(__name__)
_PREFIX = "shadow/"
_KEPT = ("brier", "fallback")  # metrics of its own session that are logged


class Shadow:
    """A policy that watches a run. It holds a session of its own, from which nothing is generated.

    A policy that decides in rounds is shadowed in its first round only, because later rounds depend
    on rollouts that nobody generated. An error in the shadow is counted in `shadow/errors` and
    logged once; the run goes on.

    Args:
        session: A `Session` of the policy that watches, with its own options and its own definition
            of success.
        quiet: Whether to suppress log messages, as in all processes but one.

    >>> from budgetalloc.training.session import Session
    >>> session = Session("uniform", ["reward"], shadow="adaptive", pool=["a", "b", "c"])
    >>> session.begin(["a", "b"], rollouts=4, group=2)
    >>> session.observe(session.request(), [1, 0, 1, 1], lengths_R=[5, 7, 9, 3])
    >>> metrics = session.end().metrics
    >>> metrics["advantage/frac_nonzero"], metrics["shadow/advantage/frac_nonzero"], metrics["shadow/prompts"]
    (0.5, 1.0, 2.0)
    """

    def __init__(self, session: Any, quiet: bool = False) -> None:
        self.session, self.quiet = session, quiet
        self.errors = 0
        """Errors so far. After one, the shadow may have missed a step."""
        self._offer: tuple[Sequence[Id], int, int] | None = None

    @property
    def from_loader(self) -> bool:
        """Whether the prompts of the loader's batch are among its candidates."""
        return bool(self.session.options.bounds.candidates != "all")

    def offer(self, own_ids: Sequence[Id], rollouts: int, group: int) -> None:
        """Notes what the run's next step is offered; arguments as in `Session.begin`."""
        self._offer = own_ids, rollouts, group

    def adopt(self, run: Policy, prompts: Prompts, rollouts: int, group: int) -> None:
        """Gives the policy the features of the run's policy and the quotas of a dataset, and checks
        its budget.

        Args:
            run: The run's policy.
            prompts: The dataset's prompts.
            rollouts, group: As in `Session.begin`.

        Raises:
            UnsupportedError, InputError, BudgetError: the policy could not be attached to this
                training.
        """
        session, estimator = self.session, run.estimator
        if isinstance(estimator, TrackingEstimator) and estimator.features is not None:
            session.policy = session.policy.with_features(estimator.features)
        session.options.bounds.budget(rollouts, 1, group)
        session.quotas = session.options.quotas_of(prompts, session.policy, rollouts, group)

    def choose_from(self, prompts: Prompts) -> None:
        """Sets the pool, for a policy that chooses among more prompts than those of the batch."""
        if self.session.options.bounds.candidates != 1:
            self.session.pool = prompts.pool

    def watch(self, batch: Rollouts | None, options: Options) -> dict[str, float]:
        """Decides, compares, and learns from a finished step of the run.

        Args:
            batch: The record of the step; None if every rollout failed.
            options: The options of the run, which give its advantages.

        Returns:
            Metrics whose names begin with `shadow/`. Those of a part that raised an error are
                missing.
        """
        started, metrics = time.perf_counter(), dict[str, float]()
        if batch is not None and self._offer is not None:
            metrics |= self._guarded(lambda: self._decide(batch))
        metrics |= self._guarded(lambda: self._learn(batch, options))
        self._offer = None
        metrics |= {"errors": float(self.errors), "seconds": time.perf_counter() - started}
        return {_PREFIX + name: value for name, value in metrics.items()}

    def _decide(self, batch: Rollouts) -> dict[str, float]:
        """Begins the step that the policy would have had, and drops it after its first request."""
        assert self._offer is not None
        session = self.session
        session.begin(*self._offer)
        ids_R = session.request()
        metrics = compared_counts(ids_R, batch.ids_R)
        for name, chosen_R in (
            ("variance_predicted", ids_R),
            ("variance_predicted_run", batch.ids_R),
        ):
            if len(chosen_R):
                metrics[name] = float(np.mean(session.policy.belief(chosen_R).moment(1, 1)))
        return metrics

    def _learn(self, batch: Rollouts | None, options: Options) -> dict[str, float]:
        """Ends a step on the run's rollouts, without those with a hint, from which beliefs do not
        learn."""
        session = self.session
        rows = np.zeros(0, dtype=np.int64) if batch is None else np.flatnonzero(~batch.hinted_R)
        if batch is None or not rows.size:
            session.policy.learn([])
            return {}
        ids_R = [batch.ids_R[at] for at in rows.tolist()]
        generated = Budget(len(ids_R), floor=0, min_group=1)
        session.begin_among(list(dict.fromkeys(ids_R)), generated, len(ids_R), 1)
        prompts_R = None if batch.prompt_lengths_R is None else batch.prompt_lengths_R[rows]
        scores_RF, lengths_R, rewards_R = (
            batch.scores_RF[rows],
            batch.lengths_R[rows],
            batch.rewards_R[rows],
        )
        more: dict[str, Any] = {"rewards_R": rewards_R, "prompt_lengths_R": prompts_R}
        if session.costs.reported is not None:
            more["costs_R"] = {name: column_R[rows] for name, column_R in batch.reported.items()}
        session.observe(ids_R, scores_RF, lengths_R, **more)
        ended = session.end()
        metrics = {name: ended.metrics[name] for name in _KEPT if name in ended.metrics}
        return metrics | compared_advantages(
            ended.advantages_R, options.advantages(batch).values_R[rows]
        )

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
        if self.errors == 1 and not self.quiet:
            logger.warning("The shadow %s %s", self.session.policy, what)

    def added_to(
        self, state: dict[str, Any], about: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """A session's state, and the facts saved with it, with those of the shadow."""
        own_state, own_about = self.session.state()
        return state | {_PREFIX + name: value for name, value in own_state.items()}, about | {
            "shadow": own_about
        }

    def restore(self, state: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        """Restores what `added_to` added. If it is missing or does not fit, the shadow goes on with
        what it knows."""
        if "shadow" not in about:
            if not self.quiet:
                logger.warning(
                    "The checkpoint was made without the shadow %s, which starts without beliefs.",
                    self.session.policy,
                )
            return
        own = {
            name.removeprefix(_PREFIX): value
            for name, value in state.items()
            if name.startswith(_PREFIX)
        }
        try:
            self.session.restore(own, about["shadow"])
        except Exception as error:
            self._count(
                f"starts without beliefs, because those of the checkpoint do not fit: {error}"
            )


def compared_counts(ids_R: Sequence[Id], run_R: Sequence[Id]) -> dict[str, float]:
    """What a policy would have drawn, compared with what a run drew.

    Args:
        ids_R: The prompt of each rollout that the policy requests.
        run_R: The prompt of each rollout of the run's step.

    Returns:
        `prompts`, the number of prompts requested; `frac_in_batch`, the share of the requested
            rollouts whose prompt
        is in the run's step; and `overlap`, the share that the two allocations have in common, in
            [0, 1].

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
    """Two policies' advantages of the same rollouts, compared.

    Args:
        advantages_R: The advantages that the policy would have given, shape (R,).
        run_R: The advantages that the run's policy gave, shape (R,).

    Returns:
        The metrics of `of_advantages`; `advantage/mean` and `advantage/mean_run`, the two means;
            `advantage/rms_ratio`,
        the root mean square relative to the run's; `advantage/correlation` of the two;
            `advantage/frac_gained` and
        `frac_lost`, the shares of rollouts that only the policy, or only the run, gave an advantage
            other than 0; and
        `frac_both_zero`. A ratio or correlation that is not defined is left out.

    >>> found = compared_advantages(np.array([0.5, -0.5, 0.2, 0.0]), np.array([1.0, -1.0, 0.0, 0.0]))
    >>> {name: round(found[f"advantage/{name}"], 3) for name in ("rms_ratio", "correlation", "frac_gained")}
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


def policy_to_watch(shadow: PolicyLike, policy: Policy | None = None) -> Policy:
    """The policy that a user gives as `shadow=`; raises `InputError` if it is none, or the run's
    own `policy`.

    >>> policy_to_watch("adaptiv")
    Traceback (most recent call last):
    budgetalloc.errors.InputError: shadow='adaptiv': policy 'adaptiv' is unknown, did you mean adaptive? Use a name of
    `budgetalloc methods`, such as knapsack.
    """
    try:
        watching = policy_of(shadow, "shadow")
    except InputError as error:
        named = str(error).startswith("shadow=")
        raise InputError(str(error) if named else f"shadow={shown(shadow)}: {error}") from error
    if watching is policy:
        raise InputError(
            f"shadow={shadow!r} is the run's own policy, which would learn everything twice. Build "
            "another one."
        )
    return watching


def options_to_watch(policy: Policy, trainer_scale: Any, given: Mapping[str, Any]) -> Options:
    """The options of a policy that watches, from the arguments of `AdaptiveGRPOCallback`.

    Hints and stored responses are left out, because they are the run's own. A cost is left out if
    the policy does not weigh costs, or if it is "seconds", whose prices only the run can learn.
    """
    left_out = {"hint", "buffer"}
    if not policy.needs.costs or given.get("cost") == "seconds":
        left_out |= {"cost", "cost_per_step"}
    return Options.resolve(
        policy.needs, trainer_scale, {k: x for k, x in given.items() if k not in left_out}
    )

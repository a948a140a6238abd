"""The node `budgetalloc` of verl's configuration, as a policy and its options."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from budgetalloc.contrib.pacing import pacing_plan, tuples
from budgetalloc.errors import (
    InputError,
    check_flag,
    check_number,
    check_type,
    prefix_errors,
    short_repr,
)
from budgetalloc.policies import Policy
from budgetalloc.training.options import Options, check_node, other_scale
from budgetalloc.training.policy_like import resolve_policy
from budgetalloc.training.prompt_features import check_features
from budgetalloc.training.session import Session

logger = logging.getLogger(__name__)

_OPTIONS = Options.names(trl=False)
_OWN = ("pacing", "prompt_id", "features", "ledger", "allow_dataset_change", "straggler_timeout")
REWARD, PENALTY = "reward", "kl_penalty"
"""The names of verl's own rewards: the reward function's score, and the penalty of
`algorithm.use_kl_in_reward`."""


@dataclass(frozen=True, eq=False)
class Settings:
    """A policy and the arguments of `budgetalloc.trl.AdaptiveGRPOCallback` that verl supports.

    Args:
        session: Runs the policy through the steps.
        prompt_id: The dataset column that holds prompt ids; None as in `AdaptiveGRPOCallback`.
        features: Columns of the dataset, "text" or "run:PATH", as in `AdaptiveGRPOCallback`; None
            for no features.
        ledger: A file to which every rollout is appended, or None.
        allow_dataset_change: Whether a run may resume with another dataset.
        straggler_timeout: Seconds after which a batch of `budgetalloc_async` stops waiting for its
            oldest rollouts.

    >>> given = {"policy": {"name": "knapsack", "seed": 1}, "floor": 0}
    >>> session = Settings.read(given, deviation=True, penalty=False).session
    >>> session.policy.seed, session.options.bounds.floor, session.scoring.names
    (1, 0, ('reward',))
    """

    session: Session
    prompt_id: str | None
    features: str | tuple[str, ...] | None
    ledger: str | None
    allow_dataset_change: bool
    straggler_timeout: float = 600.0

    def check_shadow(self, policy: Policy, options: Options) -> None:
        """Raises `InputError` if this policy cannot watch the run."""
        run = self.session
        if options.bounds.candidates != "all" and run.options.bounds.candidates == "all":
            raise InputError(
                f"{policy} chooses from the loader's batch, and {run.policy} from all prompts, so "
                "that verl loads no batch. Use a shadow that chooses from all prompts, such as "
                "adaptive.",
                argument="shadow",
            )

    @classmethod
    def read(
        cls, given: Mapping[str, Any], *, deviation: bool, penalty: bool, ahead: bool = False
    ) -> "Settings":
        """The settings of this node.

        Args:
            given: The node's keys and values, in plain Python types.
            deviation: verl's `algorithm.norm_adv_by_std_in_grpo`. If False, advantages have scale
                "none", unless the node has a `scale`.
            penalty: verl's `algorithm.use_kl_in_reward`. If True, the total reward is the score and
                a penalty, and success follows from the score.
            ahead: Whether verl generates ahead of training. The candidates are then the prompts of
                the batch.

        Raises:
            InputError: a key is unknown, or a value is out of range.
        """
        given = {key: tuples(value) for key, value in given.items()}
        check_node(given, _OWN)
        policy = resolve_policy(given.get("policy") or "adaptive", "budgetalloc.policy")
        if (pacing := given.get("pacing")) is not None:
            what = "a mapping, as in configs/paced.yaml"
            check_type("budgetalloc.pacing", pacing, Mapping, what)
            with prefix_errors("budgetalloc.pacing: "):
                policy = replace(policy, plan=pacing_plan(pacing))
        asked: dict[str, Any] = {"candidates": 1} if ahead else {}
        asked |= {"success": REWARD} if penalty else {}
        asked |= {key: given[key] for key in _OPTIONS if given.get(key) is not None}
        if asked.get("cost") == "seconds":
            raise InputError(
                "budgetalloc.cost=seconds: verl's steps are not timed. Use cost=tokens, or the "
                "seconds that rollouts report: cost={tokens: 1, tool_seconds: 200}.",
                argument="cost",
            )
        if (shadow := asked.get("shadow")) is not None:
            if ahead:
                raise InputError(
                    f"budgetalloc.shadow={short_repr(shadow)}: verl decides several steps ahead in "
                    "this mode. Use trainer_mode=budgetalloc, or leave it out.",
                    argument="shadow",
                )
            asked["shadow"] = resolve_policy(shadow, "budgetalloc.shadow")
        names, success = (REWARD, PENALTY) if penalty else (REWARD,), asked.get("success")
        weights = [1.0 for _ in names]
        if isinstance(success, str) and success not in names:
            # an entry of the reward function's dictionary, not a part of the total
            names, weights = (*names, success), [*weights, 0.0]
        scale = "group" if deviation else "none"
        options = Options.resolve(policy.needs, scale, asked)
        if other := other_scale(policy, options):
            logger.warning("%s", other)
        ledger, prompt_id, features = (given.get(x) for x in ("ledger", "prompt_id", "features"))
        check_type("budgetalloc.ledger", ledger, (str, type(None)), "a path")
        check_type("budgetalloc.prompt_id", prompt_id, (str, type(None)), "the name of a column")
        allow = check_flag(
            "budgetalloc.allow_dataset_change", given.get("allow_dataset_change", False)
        )
        if features is not None:
            with prefix_errors("budgetalloc."):
                check_features(features, None)
        session = Session(policy, names, weights, resolved=options)
        if not ahead and "straggler_timeout" in given:
            raise InputError(
                "budgetalloc.straggler_timeout is for trainer_mode=budgetalloc_async: leave it out."
            )
        patience = given.get("straggler_timeout", cls.straggler_timeout)
        check_number("budgetalloc.straggler_timeout", patience, 0, math.inf, without=(0,))
        return cls(session, prompt_id, features, ledger, allow, patience)

"""The options of a policy in a run: all of them, once."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from importlib import import_module
from typing import Any, Literal, cast, get_args

from budgetalloc.beliefs.rewards import check_range, check_success
from budgetalloc.errors import InputError, check_choice, check_flag, check_known, check_number
from budgetalloc.policies import Needs, Policy
from budgetalloc.policies.advantages import Advantages, batch_advantages
from budgetalloc.policies.group_advantages import Baseline, Scale, Weight, check_maxrl
from budgetalloc.policies.interface import Bounds
from budgetalloc.policies.rollouts import Rollouts
from budgetalloc.training.parts import Part
from budgetalloc.training.residuals import PromptResiduals
from budgetalloc.training.success import Scoring, Success
from budgetalloc.training.uniform_fallback import UniformFallback

_DEFAULT_SCALE = "group"  # of TRL and verl
_OF_TRL = ("hint", "buffer")  # options that other trainers cannot serve
_PARTS = (  # options that stand for a part
    (("domain", "quotas", "mixture"), "budgetalloc.contrib.domains", "Domains"),
    (("cost", "cost_per_step"), "budgetalloc.contrib.costs", "Costs"),
    (("shadow",), "budgetalloc.contrib.shadow", "Shadow"),
)


@dataclass(frozen=True)
class Options:
    """Options of `AdaptiveGRPOCallback`, `AdaptiveRolloutWorker`, `Session`, the node
    `budgetalloc` and YAML files, by name. None stands for the default.

    Args:
        candidates: Prompts to choose among. 1: those of the batch. k: k times as many, the others
            drawn from the train dataset. "all": the whole train dataset. Default: the policy's
            needs.
        floor: Fewest rollouts of a prompt; by default, 2 with `candidates=1` and 0 otherwise.
        cap: Most rollouts of a prompt; by default, 8 times the trainer's group size (more if there
            are too few prompts).
        min_group: Smallest group that is not empty. Default: the policy's needs.
        quantum: Counts are multiples of it; by default 1.
        baseline, scale, weight: As in `budgetalloc.group_advantages`. Default: the policy's needs,
            but `scale` is the trainer's own if that is not "group", its default: with TRL's
            `scale_rewards="none"`, as in Dr. GRPO (arXiv 2503.20783), differences are not divided
            by a deviation under any policy. If the trainer's is "group", advantages of scale "none"
            under "posterior" are multiplied by one number a step, to the size of those of "group".
            A batch whose rows are unchanged keeps the trainer's
            advantages, unless one of the three is given and differs from the trainer's.
        success: The success of a rollout, from which the beliefs learn. A str or an int: the name
            of a reward function, or its index. A float: a threshold on the total reward. Or a
            function of the rewards by function name, shape (R,) each, that returns success in
            [0, 1], shape (R,). Default: the reward itself if there is one function; of several,
            the one of the largest weight that has given both 0 and 1, chosen once and logged
            (until then, for at most ten steps, groups are uniform; then it is the total reward).
            Where that function returns None, success is the total reward, mapped to [0, 1].
            Advantages always use the total reward.
        reward_range: Lowest and highest total reward, mapped to [0, 1] for the beliefs if success
            is the total. Rewards outside are clipped for the beliefs and counted. By default the
            range is learned from the first 1,000 rollouts. Policies that decide nothing, such as
            `uniform()`, ignore it.
        fallback: Whether groups become uniform while the beliefs do not tell prompts apart that
            differ, and in pools of at most half as many prompts as a step has rollouts
            (`UniformFallback`). The policy continues to learn, and decides again afterwards. False
            only warns. By default True.
        metrics: "main", the default, for those that tell whether it works; or "all".
        resolution: For graded rewards: a group whose rewards differ by at most this, from lowest to
            highest, counts as one of equal rewards, for the policy and in metrics. By default 0.
            Under the baselines "group", which then replaces the trainer's own, and "loo" its
            advantages are 0. Other baselines do not compare within groups, and are unchanged.
        hint: With TRL, for `methods.on_all_fail`: a function from a dataset row to the row with a
            hint in its prompt. Rollouts with a hint belong to their prompt's group, are trained on
            with the hint, and are logged as "ID (hinted)".
        buffer: With TRL, a `budgetalloc.contrib.stored_responses.CorrectResponseBuffer`: where all
            responses of a prompt fail, a correct one of an earlier step stands for one of them.
        domain: The dataset column that names the domain of a prompt, or in a loop of your own a
            mapping from ids to domains; for `quotas`, `mixture` and statistics by domain.
        quotas: Lowest and highest share of the generated rollouts of each domain, such as
            {"math": (0.3, 0.5)}, kept at every step; prompts of other domains, or of none, are not
            limited. `contrib.domains.Domains` is the part that keeps them.
        mixture: Divides each step's rollouts between the domains, within `quotas`, by what a
            rollout there is expected to teach: "learn", "adept", or a `contrib.mixture.Mixture`.
        cost: "tokens", "seconds" (with TRL), prices of what rollouts report, such as {"tokens": 1,
            "turns": 50, "tool_seconds": 200}, or a function of the tokens of prompts and of their
            expected answers (`contrib.prices.Price`). Rollouts go where a token buys most
            (`contrib.costs.Costs`). Default: all rollouts cost the same.
        cost_per_step: What a step may cost on average, in the unit of `cost`, which must not be
            "seconds". The number of rollouts stays; a price moves them to cheaper prompts.
        shadow: Another policy that watches the run and changes nothing of it
            (`contrib.shadow.Shadow`).

    Raises:
        InputError: a value out of range, or two that contradict each other.
    """

    candidates: int | Literal["all"] | None = None
    floor: int | None = None
    cap: int | None = None
    min_group: int | None = None
    quantum: int | None = None
    baseline: Baseline | None = None
    scale: Scale | None = None
    weight: Weight | None = None
    success: Success = None
    reward_range: tuple[float, float] | None = None
    fallback: bool | None = None
    metrics: Literal["main", "all"] | None = None
    resolution: float = 0.0
    hint: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    buffer: Any = None
    domain: Any = None
    quotas: Any = None
    mixture: Any = None
    cost: Any = None
    cost_per_step: float | None = None
    shadow: Any = None
    needs: Needs = field(default_factory=Needs, repr=False)
    trainer_scale: str = field(default=_DEFAULT_SCALE, repr=False)
    asked: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def names(cls, *, trl: bool = True) -> tuple[str, ...]:
        """The names of the options, with or without those that only TRL can serve."""
        own = ("needs", "trainer_scale", "asked", *(() if trl else _OF_TRL))
        return tuple(each.name for each in fields(cls) if each.name not in own)

    @classmethod
    def resolve(
        cls,
        needs: Needs,
        trainer_scale: Any,
        given: Mapping[str, Any],
        *,
        trl: bool = True,
        others: Sequence[str] = (),
    ) -> "Options":
        """The given options, with the policy's needs as defaults.

        Args:
            needs: Needs of the policy.
            trainer_scale: The trainer's own scale of advantages. "group" is the default of
                trainers, so the policy's scale replaces it. Any other scale was chosen by the user
                and holds, unless `given` has one.
            given: Options by name; None counts as left out.
            trl: Whether the trainer is TRL's.
            others: The other arguments of the function that takes the options, for the text of an
                error.

        Raises:
            InputError: an unknown name, or a value out of range.

        >>> Options.resolve(Needs(), "group", {"flor": 2})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        budgetalloc.errors.InputError: flor= is unknown, did you mean floor? Use one of ...
        """
        for name in given:
            check_known(name, (*cls.names(trl=trl), *others), f"{name}=")
        given = {name: value for name, value in given.items() if value is not None}
        asked = cls(**given)
        for name, allowed in (("baseline", Baseline), ("scale", Scale), ("weight", Weight)):
            if (value := getattr(asked, name)) is not None:
                check_choice(name, value, get_args(allowed))
        check_success(asked.success)
        chosen = trainer_scale if trainer_scale != _DEFAULT_SCALE else needs.scale or trainer_scale
        options = replace(
            asked,
            asked=given,
            needs=needs,
            trainer_scale=trainer_scale,
            quantum=1 if asked.quantum is None else asked.quantum,
            scale=asked.scale or chosen,
            weight=asked.weight or needs.weight,
            reward_range=None if asked.reward_range is None else check_range(asked.reward_range),
            fallback=check_flag("fallback", True if asked.fallback is None else asked.fallback),
            metrics=asked.metrics or "main",
            resolution=check_number("resolution", asked.resolution, 0, math.inf),
        )
        check_choice("scale", options.scale, get_args(Scale))
        check_choice("metrics", options.metrics, ("main", "all"))
        unchanged = (options.scale, options.weight) == (trainer_scale, "rollout")
        changed = options.buffer is not None or options.resolution > 0
        kept = options.keep_batch and unchanged and not changed
        if options.baseline is None:
            options = replace(options, baseline=needs.baseline or (None if kept else "group"))
        options._check()
        return options

    def _check(self) -> None:
        _ = self.bounds  # raises if one of the sizes is out of range
        if self.buffer is not None and self.scale == "whiten_tokens":
            raise InputError(
                "buffer=",
                "with scale='whiten_tokens': replaced responses are not trained on, and "
                "their tokens would count. Use 'whiten'.",
            )
        if (self.baseline, self.scale) == ("batch", "group"):
            raise InputError(
                "baseline='batch' with scale='group': a group of equal rewards has no deviation, "
                "and differs from the batch. Pass scale='batch', or 'whiten'.",
                argument="scale",
            )
        check_maxrl(self.baseline, self.scale)
        if self.baseline == "policy" and self.needs.baseline != "policy":
            raise InputError(
                "baseline='policy':",
                "this policy has no rule of its own. Use 'posterior', or 'group'.",
            )
        if self.hint is not None and self.baseline in ("posterior", "policy"):
            raise InputError(
                f"hint= with baseline={self.baseline!r}: a belief is about the prompt without a "
                "hint. Use baseline='loo'.",
                argument="hint",
            )

    @cached_property
    def bounds(self) -> Bounds:
        """The candidates and the sizes of their groups."""
        sizes = {
            name: getattr(self, name)
            for name in ("candidates", "floor", "cap", "min_group", "quantum")
            if getattr(self, name) is not None
        }
        return Bounds.resolve(self.needs, **sizes)

    @cached_property
    def keep_batch(self) -> bool:
        """Whether the rows of the trainer's batch stay as they are."""
        return self.needs.keep_batch and self.bounds.candidates == 1

    @property
    def generate(self) -> int:
        """Rollouts that a step may generate per rollout that it trains on."""
        return self.needs.generate

    @property
    def own_scale(self) -> Scale:
        """The scale without that of the policy: the user's, or else the trainer's own."""
        return cast("Scale", self.asked.get("scale", self.trainer_scale))

    @property
    def of_groups(self) -> bool:
        """Whether advantages compare within groups. A trainer with GRPO's advantages can then keep
        its own."""
        return self.baseline in (None, "group") and not self.resolution

    def parts(self) -> list[Part]:
        """The parts that these options ask for. Their modules are imported only then."""
        made: list[Part] = []
        if self.baseline == "posterior":
            made += [UniformFallback(bool(self.fallback)), PromptResiduals()]
        for names, module, part in _PARTS:
            values = [getattr(self, name) for name in names]
            if any(value is not None for value in values):
                made.append(getattr(import_module(module), part)(*values))
        return made if self.buffer is None else [*made, self.buffer]

    def scoring(self, names: Sequence[str], weights: Sequence[float], quiet: bool) -> Scoring:
        """The scoring of these reward functions."""
        given = None if self.keep_batch else self.reward_range
        return Scoring(names, weights, self.success, given, quiet)

    def advantages(self, batch: Rollouts) -> Advantages:
        """The advantages of a batch; those of the trainer itself if its groups are uniform."""
        baseline, scale = self.baseline or "group", self.scale or "group"
        if batch.uniform:
            baseline, scale = "group", self.own_scale
        return batch_advantages(
            batch, baseline, scale, self.weight or "rollout", self.trainer_scale
        )


def check_node(given: Mapping[str, Any], own: Sequence[str]) -> None:
    """Raises `InputError` for a key of the node `budgetalloc` in another program's configuration
    that is neither "policy" nor an option nor one of `own`.

    >>> check_node({"polcy": "knapsack"}, ["ledger"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    budgetalloc.errors.InputError: budgetalloc.polcy is unknown, did you mean policy? Use one of ...
    """
    keys = ("policy", *Options.names(trl=False), *own)
    for key in given:
        check_known(key, keys, f"budgetalloc.{key}")


def other_scale(policy: Policy, options: Options) -> str | None:
    """A warning if the scale of advantages is not the scale that the policy was measured with; else
    None.

    >>> import budgetalloc as ba
    >>> policy = ba.adaptive(rounds=3)
    >>> other_scale(policy, Options.resolve(policy.needs, "group", {})) is None
    True
    >>> print(other_scale(policy, Options.resolve(policy.needs, "none", {})))
    Advantages have scale='none', as the trainer is set, and adaptive(rounds=3, seed=0) was measured
    with 'group'. Pass scale='group' for that.
    >>> print(other_scale(ba.adaptive(), Options.resolve(ba.adaptive().needs, "batch", {})))
    Advantages have scale='batch', as the trainer is set, and adaptive(seed=0) was measured in a
    trainer with 'group'. Set the trainer to 'group' for that.
    """
    wanted = policy.needs.scale
    if wanted in (None, options.scale):
        return None
    # differences keep their own size in a trainer that does not divide
    measured = (
        "in a trainer with 'group'. Set the trainer to 'group'"
        if wanted == "none"
        else f"with {wanted!r}. Pass scale={wanted!r}"
    )
    return (
        f"Advantages have scale={options.scale!r}, as the trainer is set, and {policy} was "
        f"measured {measured} for that."
    )

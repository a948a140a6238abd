"""Refuses versions of verl and settings that are not supported, before any worker starts."""

from collections.abc import Sequence
from typing import Any

from budgetalloc.beliefs.ids import Id
from budgetalloc.errors import InputError, UnsupportedError, refuse
from budgetalloc.policies import Policy
from budgetalloc.training.options import Options

SEAM = (
    "init",
    "fit",
    "on_train_begin",
    "_init_dataloader",
    "_load_checkpoint",
    "_save_checkpoint",
    "_next_train_batch",
    "_submit_batch_to_rollout",
    "_step_once",
    "_balance_batch",
    "_compute_advantage",
)
"""The methods of verl's trainer (0.9.1) that budgetalloc replaces or calls."""


BUFFER_SEAM = (
    "_sync_metadata_from_transfer_queue",
    "_terminal_eviction_reasons",
    "_evict_terminal_groups",
    "_sampleable_terminal_keys",
    "_has_enough_samples",
    "_select_prompt_uids",
)
"""The methods of its asynchronous replay buffer that `PlannedReplayBuffer` replaces."""

_SYNC = "Use trainer_mode=budgetalloc"
_KL = "Use actor_rollout_ref.actor.use_kl_loss=True"


def check_verl(trainer: type, version: str, seam: Sequence[str] = SEAM) -> None:
    """Raises `UnsupportedError` if verl's trainer or its replay buffer lacks a method that
    budgetalloc replaces."""
    missing = [name for name in seam if not hasattr(trainer, name)]
    if missing:
        raise UnsupportedError(
            f"verl {version} has no {trainer.__name__}.{missing[0]}, which "
            f"trainer_mode=budgetalloc needs (missing: {missing}). Install verl 0.9.1, or a newer "
            "budgetalloc."
        )


def check_config(
    config: Any, policy: Policy, options: Options, uses_critic: bool, *, ahead: bool = False
) -> None:
    """Raises `UnsupportedError` for settings of verl, which may generate ahead of training, with
    which the policy's decisions would not be carried out."""
    chooses, candidates = options.generate > 1, options.bounds.candidates
    if chooses and policy.keep is None:
        raise InputError(
            f"{policy} generates up to {options.generate} times as many rollouts as verl trains "
            "on, and has no keep= that chooses among them. Give the Policy a keep=, or needs with "
            "generate=1."
        )
    own, estimator = options.baseline is not None, config.algorithm.adv_estimator
    filters = (config.algorithm.get("filter_groups") or {}).get("enable", False)
    refills = config.trainer.v1.sampler.get("sync_refill_failed_groups", False)
    paced = policy.plan != ()
    number = "which trains on a number of groups whatever their sizes"
    several = f"whose batches hold groups of several decisions. {_SYNC}"
    once = "Use a policy that decides counts once a step, such as adaptive or knapsack"
    refuse(
        {
            f"candidates={candidates!r} in an asynchronous trainer, {number}. Use candidates=1, or "
            "trainer_mode=budgetalloc": ahead and candidates != 1,
            f"a policy that chooses among its rollouts ({policy}) in an asynchronous trainer, "
            f"{several}": ahead and chooses,
            f"domain={options.domain!r} in an asynchronous trainer, {several}": ahead
            and options.domain is not None,
            f"a pacing ({policy}) in an asynchronous trainer, {number}. {_SYNC}": ahead and paced,
            f"a pacing of {policy}, which leaves verl's batch as it is. {once}": paced
            and options.keep_batch,
            f"a pacing of {policy}, which generates more than it trains on. {once}": paced
            and chooses,
            "algorithm.use_kl_in_reward=True and a policy that chooses among its rollouts "
            f"({policy}): verl computes the penalty of rollouts that it trains on. {_KL}": chooses
            and config.algorithm.use_kl_in_reward,
            "algorithm.filter_groups.enable=True: verl drops groups of equal rewards before the "
            "policy sees them, and the beliefs would be about mixed groups only. Set it to False: "
            "the policy avoids such prompts itself": filters,
            "trainer.v1.sampler.sync_refill_failed_groups=True: new prompts in the middle of a "
            "step are another decision. Set it to False: a step is trained on the rollouts that "
            "came back": refills,
            "skip.rollout_tq.enable=True: rollouts that are read from disk are not those of this "
            "step's decision": config.skip.rollout_tq.enable,
            f"a critic (algorithm.adv_estimator={estimator}): the advantages are computed by "
            f"{policy} from rewards. Use algorithm.adv_estimator=grpo without a critic": own
            and uses_critic,
            f"algorithm.adv_estimator={estimator}: the advantages of {policy} would replace those "
            f"of {estimator}. Use algorithm.adv_estimator=grpo, and +budgetalloc.baseline= and "
            "+budgetalloc.scale= for other advantages": own and estimator != "grpo",
        },
        f"trainer_mode={config.trainer.v1.trainer_mode} does not work with ",
        ".",
    )


def check_decisions(
    policy: Policy,
    options: Options,
    ids: Sequence[Id],
    rollouts: int,
    group: int,
    *,
    once: bool = False,
) -> bool:
    """Whether the policy decides in rounds; called before the models are loaded.

    Args:
        policy, options: The policy to attach.
        ids: The prompts of the dataset.
        rollouts: Rollouts that a step trains on, without pacing.
        group: verl's `rollout.n`.
        once: As in `View`.

    Raises:
        InputError: there are too few prompts. BudgetError: the bounds contradict each other or the
            rollouts of a step.
    """
    batch = rollouts // group
    if options.bounds.candidates != "all" and len(ids) < batch:
        raise InputError(
            f"The train dataset has {len(ids)} prompts, and data.train_batch_size is {batch}."
        )
    some = ids[: options.bounds.on_offer(batch, len(ids))]
    for count in {rollouts, *policy.plan}:
        options.bounds.budget(options.generate * count, len(some), group).check(len(some))
    budget = options.bounds.budget(options.generate * rollouts, len(some), group)
    return policy.begin(some, budget, once=once).in_rounds()


def without_rounds(config: Any, *, ahead: bool = False) -> str:
    """The setting of verl with which the rewards of a step come only after it, and what to do; ""
    if there is none. `ahead`: it may generate ahead of training."""
    model = config.reward.reward_model
    refused = {
        f"an asynchronous trainer, whose batches hold groups of several decisions. {_SYNC}": ahead,
        "a colocated reward model, which scores a step at its end. Set "
        "reward.reward_model.enable_resource_pool=True, or use a policy that decides once a step, "
        "such as adaptive": model.enable and not model.enable_resource_pool,
        "algorithm.use_kl_in_reward=True: verl computes the penalty at the end of a step. "
        f"{_KL}": config.algorithm.use_kl_in_reward,
    }
    return next((what for what, applies in refused.items() if applies), "")


def check_rounds(policy: Policy, refused: str) -> None:
    """Raises `UnsupportedError` if a policy that only decides in rounds meets such a setting."""
    if refused:
        raise UnsupportedError(
            f"{policy} decides in rounds, by rewards within the step. It does not work with "
            f"{refused}."
        )

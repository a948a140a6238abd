"""Which policy fits, by what is known of a run; docs/choose.md has the reasons and the figures."""

from typing import Any

from budgetalloc.cli.doctor.setup import Setup
from budgetalloc.policies.adaptive import IDLE, group_without_history
from budgetalloc.training.options import Options
from budgetalloc.trl.served import Facts

_CHARACTERS = 4  # of a token, roughly, in English


def advice(setup: Setup, facts: Facts, options: Options | None, distinct: int | None) -> list[str]:
    """A sentence for each fact that bears on the choice, the policy that fits first.

    Args:
        setup: The run.
        facts: The same, as the rules see it.
        options: How the policy is attached; None if that is not known.
        distinct: Distinct prompts of the dataset; None if they are not known, and then its rows count.
    """
    said = []
    rollouts, pool = setup.settings.get("generation_batch_size"), distinct or setup.data.rows
    if facts.indexable is False:
        said.append("Rows of a stream cannot be chosen: uniform(), or inside the batch policies.hora() or xrpo().")
    else:
        said.append("adaptive(), the default, fits; attach uniform() to a first run as the control.")
    if facts.indexable is not False and pool and rollouts:
        group = setup.settings.get("num_generations", rollouts)
        said.append(_of_the_pool(pool, rollouts, group, _steps(setup, pool)))
    elif facts.indexable is not False:
        said.append(
            "Pool against rollouts is not known: in a run of less than an epoch prompts do not return; expect little."
        )
    length, longest = setup.data.length(), setup.settings.get("max_completion_length")
    if length is not None and longest:
        tokens = length / _CHARACTERS
        said.append(
            f"Prompts have about {tokens:,.0f} tokens and completions at most {longest:,}: "
            + (
                "long prompts cost most as single rollouts, so use min_group=4."
                if tokens > longest
                else "short enough."
            )
        )
    if setup.rewards is not None and len(setup.rewards) > 1 and setup.given["success"] is None:
        names = ", ".join(setup.rewards)
        said.append(
            f"Of {len(setup.rewards)} rewards ({names}) success is chosen at the first step: name it, success='...'."
        )
    if setup.tools or setup.environments:
        said.append("Rollouts of several turns: no policy in rounds, each of which waits for its longest rollout.")
    if options is not None and options.bounds.candidates == 1 and not options.keep_batch:
        said.append("candidates=1: nothing is known of a prompt in the first epoch, and little is gained after it.")
    if setup.processes > 1:
        said.append(f"{setup.processes} processes: served; process 0 decides, and one process has one ledger.")
    return said


def _steps(setup: Setup, pool: int) -> int | None:
    """Generation batches of the whole run; None if that is not known."""
    settings = setup.settings
    names = ("generation_batch_size", "num_generations", "num_train_epochs", "max_steps", "num_iterations")
    sizes: list[Any] = [settings.get(name) for name in (*names, "gradient_accumulation_steps", "steps_per_generation")]
    if any(not isinstance(size, int | float) for size in sizes):
        return None
    rollouts, group, epochs, most, iterations, accumulated, every = sizes
    if most > 0:
        return max(1, int(most * accumulated / (every * iterations)))
    return max(1, int(epochs * pool / (rollouts // group)))


def _of_the_pool(pool: int, rollouts: int, group: int, steps: int | None) -> str:
    """Whether prompts return: under plain GRPO, and as `adaptive` counts it."""
    each = "" if steps is None else f", {steps * rollouts / pool:,.1f} a prompt over {steps:,} steps"
    text = f"{pool:,} prompts for {rollouts:,} rollouts a step{each}: "
    if steps is not None and steps * rollouts < group * pool:
        return text + "less than an epoch, so prompts hardly return and history tells little."
    if group_without_history(pool, rollouts, IDLE) > 2:
        return text + "what is known of a prompt has faded when it returns; adaptive() starts each with a group of 4."
    return text + "prompts return while what is known of them counts."

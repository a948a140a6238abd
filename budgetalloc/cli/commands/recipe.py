"""`budgetalloc recipe`: scripts and settings to start from, listed or printed."""

import argparse
from pathlib import Path
from typing import NamedTuple

from budgetalloc.errors import InputError, shown

__all__ = ["RECIPES", "Recipe", "run", "text_of"]


class Recipe(NamedTuple):
    """A file of the repository that the wheel carries."""

    file: str  # its path in the repository
    about: str  # what it is for


RECIPES = {
    "first_run": Recipe(
        "integrations/trl/first_run.py", "TRL: a tiny model on a CPU, uniform and adaptive"
    ),
    "trl": Recipe(
        "integrations/trl/train.py", "TRL: your model and data, with the settings of a YAML file"
    ),
    "trl.yaml": Recipe("configs/trl_adaptive.yaml", "settings of that script"),
    "gsm8k": Recipe(
        "integrations/trl/gsm8k.py", "TRL: a right answer and a format, two reward functions"
    ),
    "domains": Recipe(
        "integrations/trl/domains.py", "TRL: several domains, with quotas or learned shares"
    ),
    "reward_model": Recipe(
        "integrations/trl/reward_model.py", "TRL: a reward model, with a range or without"
    ),
    "tools": Recipe(
        "integrations/trl/tools.py", "TRL: an environment of several turns with a tool"
    ),
    "shadow": Recipe(
        "integrations/trl/shadow.py", "TRL: uniform groups, and what another policy would change"
    ),
    "agent": Recipe(
        "integrations/trl/agent.py", "TRL: an agent whose turns differ, with a budget in cost"
    ),
    "verl": Recipe("integrations/verl/train.sh", "verl: GSM8K on one node of 8 GPUs"),
    "verl.yaml": Recipe(
        "integrations/verl/gsm8k.yaml", "settings of that script: gsm8k.yaml, in the same folder"
    ),
    "log": Recipe("integrations/log/decide.py", "the log of a finished run: what to compare next"),
    "plain_loop": Recipe(
        "integrations/plain_loop/plain_loop.py", "a loop of your own, with transformers alone"
    ),
    "tinker": Recipe(
        "integrations/tinker/budgetalloc_tinker.py", "tinker-cookbook: your RLDataset, wrapped"
    ),
    "trinity": Recipe(
        "integrations/trinity/budgetalloc_trinity.py", "Trinity-RFT: which prompts, by its selector"
    ),
    "art": Recipe("integrations/art/budgetalloc_art.py", "ART: groups of trajectories"),
    "knapsack.yaml": Recipe(
        "configs/knapsack.yaml", "settings of a knapsack inside the batch, for replay and demo"
    ),
    "paced.yaml": Recipe(
        "configs/paced.yaml", "settings of a budget that grows over the run, for replay"
    ),
}


def run(args: argparse.Namespace) -> None:
    """Prints the recipe of this name, or the list."""
    if args.name is None:
        width = max(map(len, RECIPES))
        lines = [f"  {name:<{width}}  {recipe.about}" for name, recipe in RECIPES.items()]
        print("\n".join([*lines, "", "Print one into a file:  budgetalloc recipe trl > train.py"]))
    elif args.name in RECIPES:
        print(text_of(args.name), end="")
    else:
        raise InputError(
            f"{shown(args.name)}: no such recipe. The recipes are {', '.join(RECIPES)}."
        )


def text_of(name: str) -> str:
    """The text of a recipe, from the installed package or from the clone that holds it."""
    inside = Path(__file__).parents[1] / "recipes"
    folder = inside if inside.exists() else Path(__file__).parents[3]
    return (folder / RECIPES[name].file).read_text(encoding="utf-8")

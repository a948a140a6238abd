"""`budgetalloc recipe`: scripts and settings to start from, listed or printed."""

import argparse
from pathlib import Path

from budgetalloc.errors import check_known, short_repr

RECIPES = {
    "first_run": "integrations/trl/first_run.py",
    "trl": "integrations/trl/train.py",
    "trl.yaml": "configs/trl_adaptive.yaml",
    "gsm8k": "integrations/trl/gsm8k.py",
    "domains": "integrations/trl/domains.py",
    "reward_model": "integrations/trl/reward_model.py",
    "tools": "integrations/trl/tools.py",
    "shadow": "integrations/trl/shadow.py",
    "agent": "integrations/trl/agent.py",
    "verl": "integrations/verl/train.sh",
    "verl.yaml": "integrations/verl/gsm8k.yaml",
    "axolotl.yaml": "integrations/axolotl/grpo.yaml",
    "unsloth": "integrations/unsloth/check.py",
    "plain_loop": "integrations/plain_loop/plain_loop.py",
    "tinker": "integrations/tinker/budgetalloc_tinker.py",
    "trinity": "integrations/trinity/budgetalloc_trinity.py",
    "art": "integrations/art/budgetalloc_art.py",
    "knapsack.yaml": "configs/knapsack.yaml",
    "paced.yaml": "configs/paced.yaml",
}
"""Files of the repository, which the wheel carries, by name. A file begins with what it is for."""


def run(args: argparse.Namespace) -> None:
    """Prints the recipe of this name, or the list."""
    if args.name is None:
        for name in RECIPES:
            first = next(x for x in text_of(name).splitlines() if not x.startswith("#!"))
            about = first.strip('"# ')
            print(f"  {name:<13}  {Path(RECIPES[name]).name:<22}  {about}")
        # A file called art.py would hide the package that it imports.
        print("\nPrint one into the file named here:  budgetalloc recipe trl > train.py")
    else:
        check_known(args.name, RECIPES, f"the recipe {short_repr(args.name)}")
        print(text_of(args.name), end="")


def text_of(name: str) -> str:
    """The text of a recipe, from the installed package or from the clone that holds it."""
    inside = Path(__file__).parents[1] / "recipes"
    folder = inside if inside.exists() else Path(__file__).parents[3]
    return (folder / RECIPES[name]).read_text(encoding="utf-8")

"""The entry point `verl.plugins`, which verl imports in every process: registers the trainer modes
if needed."""

import importlib
import logging
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

logger = logging.getLogger(__name__)
TRAINERS = "verl.trainer.ppo.v1"


def register() -> None:
    """Registers the trainer modes. If that fails, a warning says why, and verl goes on without
    them."""
    try:
        for name in ("sync_trainer", "async_trainer"):
            importlib.import_module(f"budgetalloc.verl.{name}")
    except Exception as error:
        version = getattr(sys.modules.get("verl"), "__version__", "of unknown version")
        logger.warning(
            "verl %s has no trainer_mode=budgetalloc (%s: %s). Install verl 0.9.1, or a newer "
            "budgetalloc.",
            version,
            type(error).__name__,
            error,
        )


class AfterVerl(MetaPathFinder):
    """Registers the trainer modes when verl's trainers are imported, which most of verl's processes
    never do."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != TRAINERS:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                register()

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


if TRAINERS in sys.modules:
    register()
else:
    sys.meta_path.insert(0, AfterVerl())

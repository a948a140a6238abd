"""`budgetalloc check`: runs a training script up to `GRPOTrainer.train()`, and says what the
training would do."""

import argparse
import inspect
import json
import os
import runpy
import signal
import sys
import textwrap
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

from budgetalloc.errors import BudgetallocError, InputError, import_optional, short_repr

PATIENCE = 2.0  # seconds for a script to end after Ctrl-C


def run(args: argparse.Namespace) -> int:
    """Runs the script with its arguments, and prints what it would train. Returns 1 if the script
    fails."""
    if not args.script.is_file():
        raise InputError(f"{args.script}: there is no such file. Give the script that trains.")
    if sys.stderr.isatty():  # the script decides how long this takes
        print(f"Loads TRL, and runs {args.script} up to train(). Ctrl-C ends.", file=sys.stderr)
    # loaded before the child, which would compile it anew
    assert import_optional("trl", "budgetalloc check", "trl").GRPOTrainer
    found = _in_child(lambda tell: _run_to_train(args.script, args.args, args.policy, tell))
    if "error" in found:
        raise BudgetallocError(found["error"])
    if "ended" in found:
        sys.exit(found["ended"])
    lines = textwrap.TextWrapper(
        100, subsequent_indent=" " * 12, break_on_hyphens=False, break_long_words=False
    )
    for name, text in found.get("described", ()):
        print(lines.fill(f"{name:<12}{text}"))
    return 0 if "described" in found else 1


_Tell = Callable[[dict[str, Any]], NoReturn]


def _in_child(work: Callable[[_Tell], None]) -> dict[str, Any]:
    """What a child process told by `tell`, at which it ends: no `finally`, no `atexit` and no other
    thread of it goes on. Empty if the child ended without a word."""
    sys.stdout.flush()
    sys.stderr.flush()
    receive, send = os.pipe()
    if (child := os.fork()) == 0:

        def tell(found: dict[str, Any]) -> NoReturn:
            with os.fdopen(send, "w") as pipe:
                json.dump(found, pipe)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

        try:
            work(tell)
        finally:
            os._exit(1)
    os.close(send)
    try:
        with os.fdopen(receive) as pipe:
            said = pipe.read()
    except KeyboardInterrupt:
        _end(child)
        raise KeyboardInterrupt("The script did not come to train().") from None
    os.waitpid(child, 0)
    return dict(json.loads(said)) if said else {}


def _end(child: int) -> None:
    """Waits for a child that a terminal's Ctrl-C ends too; kills one that goes on."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _run_to_train(script: Path, argv: list[str], policy: str | None, tell: _Tell) -> None:
    """Runs the script, and tells what its first training of a GRPOTrainer would do, or why there is
    none. A `policy` replaces the script's own. Folders that are still empty are removed."""
    from budgetalloc.trl import AdaptiveGRPOCallback
    from budgetalloc.trl.patching import patched_attribute

    grpo_trainer = import_optional("trl", "budgetalloc check", "trl").GRPOTrainer
    transformers = import_optional("transformers", "TRL", "trl")
    given: dict[Any, dict[str, Any]] = {}
    folders: list[str] = []
    init, mkdir = AdaptiveGRPOCallback.__init__, os.mkdir

    @wraps(init)
    def noted_init(self: Any, *positional: Any, **named: Any) -> None:
        bound = inspect.signature(init).bind(self, *positional, **named)
        if policy is not None:
            bound.arguments["policy"] = policy
        given[self] = dict(bound.arguments)
        init(*bound.args, **bound.kwargs)

    def noted_mkdir(path: Any, *more: Any, **named: Any) -> None:
        mkdir(path, *more, **named)
        folders.append(os.path.abspath(os.fsdecode(path)))

    def leave(found: dict[str, Any]) -> NoReturn:
        for path in reversed(folders):
            with suppress(OSError):  # the script wrote into it
                os.rmdir(path)
        tell(found)

    def train(self: Any, *_: Any, **__: Any) -> None:
        if not isinstance(self, grpo_trainer):
            print(f"{type(self).__name__}.train() is left out.", file=sys.stderr)
            return
        try:
            callback = next((x for x in self.callback_handler.callbacks if x in given), None)
            if callback is None:
                raise InputError(
                    f"{script} attaches no AdaptiveGRPOCallback. Before train(), write "
                    "trainer.add_callback(AdaptiveGRPOCallback(trainer))."
                )
            leave({"described": list(_described(callback, given[callback]))})
        except BudgetallocError as error:
            leave({"error": str(error)})
        except Exception:
            traceback.print_exc()
            leave({})

    sys.dont_write_bytecode = True
    with (
        patched_attribute(AdaptiveGRPOCallback, "__init__", noted_init),
        patched_attribute(transformers.Trainer, "train", train),
        patched_attribute(os, "mkdir", noted_mkdir),
        patched_attribute(sys, "argv", [str(script), *argv]),
        patched_attribute(sys, "path", [str(script.parent.resolve()), *sys.path]),
    ):
        try:
            runpy.run_path(str(script), run_name="__main__")
        except BudgetallocError as error:
            leave({"error": str(error)})
        except SystemExit as ended:
            if ended.code:
                leave({"ended": ended.code if isinstance(ended.code, int) else str(ended.code)})
        except KeyboardInterrupt:
            leave({})
        except BaseException:  # an error of the script
            traceback.print_exc()
            leave({})
        leave(
            {
                "error": f"{script} ended without a call of GRPOTrainer.train(). Give the script "
                "that trains."
            }
        )


def _described(callback: Any, given: dict[str, Any]) -> Iterator[tuple[str, str]]:
    from budgetalloc.trl.compatibility import unaligned_saves
    from budgetalloc.trl.reward_probes import probe

    yield "policy", str(callback.policy)
    yield "success", _success(callback.session.scoring)
    yield "first step", _first_step(callback)
    own = {
        name: x for name, x in given.items() if name not in ("self", "trainer", "policy", "options")
    }
    changed = [
        f"{name}={short_repr(value)}"
        for name, value in (own | dict(callback.options.asked)).items()
        if value is not None
    ]
    yield "changed", f"{', '.join(changed) or 'nothing'} (options that are not the default)"
    if warning := unaligned_saves(callback.trainer):
        yield "warning", warning
    for sentence in probe(callback.trainer, callback.session.scoring):
        yield "rewards", sentence


def _success(scoring: Any) -> str:
    """What success is, or how it will be chosen from the first rewards."""
    from budgetalloc.training.success import in_words

    names = list(scoring.names)
    if scoring.rule is None:
        return (
            f"is chosen once, from the rewards of {', '.join(names)}: the one of the largest "
            "weight that has given both 0 and 1; groups are uniform until then. Pass success= to "
            "name it."
        )
    return in_words(names, scoring.rule)


def _first_step(callback: Any) -> str:
    """How many rollouts of how many prompts the first step would draw: it is decided as the
    training would."""
    trainer, session = callback.trainer, callback.session
    prompts, options = callback.prompts, callback.options
    rollouts, group = trainer.args.generation_batch_size, trainer.num_generations
    if callback._unobserved is not None:
        return f"{rollouts} rollouts of {rollouts // group} prompts. {callback._unobserved}"
    ids_R = []
    if options.bounds.candidates != "all":
        ids_R = prompts.ids(next(iter(trainer.get_train_dataloader())))
    if options.bounds.candidates != 1:
        session.pool = prompts.pool
    session.begin(ids_R, rollouts, group)
    if not options.keep_batch:
        ids_R = session.request()
    sizes = Counter(ids_R).values()
    later = (
        ", and more once these are scored"
        if not options.keep_batch and session.step.in_rounds()
        else ""
    )
    each = " to ".join(str(size) for size in sorted({min(sizes), max(sizes)}))
    among = len(session.step.ids_P)
    drawn = f"{len(ids_R)} rollouts of {len(sizes)} prompts among {among}, {each} of each"
    return f"{drawn}{later}. This is for one process."

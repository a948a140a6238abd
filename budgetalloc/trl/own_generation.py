"""Trainers, subclasses and wrappers whose own code takes part in generation: what of it cannot work
with groups of uneven size, and what it made."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

import torch
from trl import GRPOTrainer

from budgetalloc.errors import UnsupportedError
from budgetalloc.trl.patching import patched_attribute

WHOLE, SINGLE = "_generate_and_score_completions", "_generate_single_turn"
_GENERATING = (WHOLE, "_generate", SINGLE, "_calculate_rewards")
_SIZE, _ADVANTAGES = "num_generations", "advantages"
_INSTEAD = (
    "Attach uniform(), or remove that code: adaptive(rounds=3) and methods.reinforce_ada() "
    "generate more where a step needs it."
)


def reads_of_groups(trainer: Any) -> str | None:
    """What code of the user reads of equal groups while it generates, or None.

    Under a policy that chooses rows, `num_generations` is then 1, rows that stand together are of
    any prompts, and advantages are 0 until all rollouts of the step are known. A method that calls
    no method of TRL's trainer is a copy of TRL's, for which groups of one are right.
    """
    for name in (*_GENERATING, "_prepare_inputs"):
        for owner, function in _overrides(trainer, name):
            read = _names(function, type(trainer))
            copied = name != "_calculate_rewards" and not {"super", "GRPOTrainer"} & read
            if name == "_prepare_inputs":  # of another step's batch, unless it generates
                found = {_SIZE} if WHOLE in read else set()
            elif copied and isinstance(owner, type):
                found = set()
            else:
                found = {_SIZE} | ({_ADVANTAGES} if name == WHOLE else set())
            if found := found & read:
                where = owner.__name__ if isinstance(owner, type) else "the trainer"
                return f"{where}.{name} reads {' and '.join(sorted(found))}"
    return None


def refusal(policy: Any, what: str) -> UnsupportedError:
    """The error about a trainer that does `what` of its own while it generates."""
    return UnsupportedError(
        f"{what}. {policy} gives prompts uneven groups and decides itself what a step generates, "
        f"so such code would work on rows of other prompts, or exceed the budget. {_INSTEAD}"
    )


def _overrides(trainer: Any, name: str) -> Iterator[tuple[Any, Any]]:
    """The functions of the user that replace this method: their owner and they."""
    for owner in _owners(trainer):
        function: Any = vars(owner).get(name)
        while function is not None:  # what decorators wrap, but not TRL's own method
            function = getattr(function, "__func__", function)
            if _of_user(function):
                yield owner, function
            function = getattr(function, "__wrapped__", None)


def _owners(trainer: Any) -> list[Any]:
    """The trainer and its classes before TRL's, without those of budgetalloc."""
    classes = type(trainer).__mro__
    own = classes[: classes.index(GRPOTrainer)]
    return [trainer, *(cls for cls in own if not cls.__module__.startswith("budgetalloc."))]


def _of_user(function: Any) -> bool:
    module = getattr(function, "__module__", None) or ""
    return isinstance(function, FunctionType) and module.partition(".")[0] not in (
        "trl",
        "budgetalloc",
        "transformers",
        "torch",
    )


def _names(function: Any, cls: type, known: set[Any] | None = None) -> set[str]:
    """The names and texts in the code of a function, and of the user's functions and methods that
    it calls."""
    known = set() if known is None else known
    if function in known:
        return set()
    known.add(function)
    names = _of_code(function.__code__)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    held = {name: cell.cell_contents for name, cell in cells if _filled(cell)}
    for name in names - {*_GENERATING, "__init__"}:
        for called in (held.get(name), function.__globals__.get(name), getattr(cls, name, None)):
            called = getattr(called, "__func__", getattr(called, "fget", called))
            if _of_user(called):
                names = names | _names(called, cls, known)
    return names


def _of_code(code: CodeType) -> set[str]:
    names = {*code.co_names, *code.co_freevars}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _of_code(constant)
        elif isinstance(constant, tuple):  # of names of arguments
            names |= {each for each in constant if isinstance(each, str)}
        elif isinstance(constant, str):
            names.add(constant)
    return names


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


class Generations:
    """What one call of the trainer's `_generate_and_score_completions` generated and scored.

    Args:
        trainer: The trainer.
        generate: Its method when training began.
        rows: The rows of this process that it is given.
        refuse: Makes the error to raise if more is generated than these rows, or if the batch is
            not made of them; None lets the trainer do what it wants.
    """

    def __init__(
        self,
        trainer: Any,
        generate: Callable[..., Any],
        rows: Sequence[dict[str, Any]],
        refuse: Callable[[str], UnsupportedError] | None,
    ) -> None:
        self.trainer, self.rows, self.refuse = trainer, rows, refuse
        self.scored: list[Sequence[Any]] = []  # the tokens of each completion, call by call
        self.given: list[bool] = []  # whether of the rows of the call
        self.asked = 0
        own = any(name in vars(x) for x in _owners(trainer) for name in _GENERATING[1:])
        self.plain = not own and getattr(generate, "__func__", None) is getattr(GRPOTrainer, WHOLE)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Counts the rollouts that TRL generates inside the block, unless several generations make
        one, as with tools. It replaces TRL's method in TRL's class, because a mixin comes before a
        user's subclass and does not see what that calls."""
        trainer = self.trainer
        if self.plain or trainer.tools or trainer.rollout_func is not None:
            yield
            return
        single = getattr(GRPOTrainer, SINGLE)

        def counting(other: Any, prompt_ids: Any, *more: Any, **named: Any) -> Any:
            if other is trainer:
                self.asked += len(prompt_ids)
                if self.refuse is not None and self.asked > len(self.rows):
                    raise self.refuse(
                        f"{type(trainer).__name__} generates {self.asked} rollouts in place of "
                        f"{len(self.rows)}"
                    )
            return single(other, prompt_ids, *more, **named)

        with patched_attribute(GRPOTrainer, SINGLE, counting):
            yield

    def score(self, inputs: Sequence[dict[str, Any]], completions: Sequence[Any]) -> bool:
        """Notes that these completions of these rows were generated and are scored; whether they
        are the rows that the trainer was given."""
        # TRL's own generation scores all it makes, once
        mine = completions if self.plain else [list(map(int, ids)) for ids in completions]
        if self.refuse is not None and self.scored and mine != self.scored[-1]:
            raise self.refuse(f"{type(self.trainer).__name__} generates more than once in a step")
        self.scored.append(mine)
        own_R, given_R = ((row.get("prompt") for row in rows) for rows in (inputs, self.rows))
        self.given.append(self.plain or list(own_R) == list(given_R))
        return self.given[-1]

    def of_batch(self, output: dict[str, Any]) -> int | None:
        """The last of the calls whose completions are the rows of this batch, None if it is made
        otherwise; the same in all processes."""
        last = len(self.scored) - 1
        if self.plain:
            return last
        pad = self.trainer._tokenizer.pad_token_id
        rows = output["completion_ids"].tolist()
        same = [
            given and _are_rows(each, rows, pad)
            for each, given in zip(self.scored, self.given, strict=True)
        ]
        own = self.refuse is not None and bool((output["advantages"] != 0).any())
        flags = torch.tensor([[*same, not own]], device=self.trainer.accelerator.device)
        *all_same, left_alone = self.trainer.accelerator.gather(flags).all(dim=0).tolist()
        found = [at for at, each in enumerate(all_same) if each]
        name = type(self.trainer).__name__
        if self.refuse is not None and not found:
            raise self.refuse(f"{name} trains on other rows than it was given")
        if self.refuse is not None and not left_alone:
            raise self.refuse(f"{name} computes advantages of its own, which would be replaced")
        return found[-1] if found else None

    def generated(self) -> int:
        """The rollouts that all processes generated."""
        scored = sum(len(each) for each in self.scored)
        processes: int = self.trainer.accelerator.num_processes
        if self.plain:
            return scored * processes
        made = torch.tensor([self.asked or scored], device=self.trainer.accelerator.device)
        everyones: int = self.trainer.accelerator.gather(made).sum().item()
        return everyones


def _are_rows(completions: Sequence[list[Any]], rows: list[list[int]], pad: int) -> bool:
    if len(completions) != len(rows):
        return False
    return all(
        row[: len(ids)] == ids and all(token == pad for token in row[len(ids) :])
        for ids, row in zip(completions, rows, strict=True)
    )

"""Run by test_faults.py: one run that is never stopped, and the same run stopped many times, in forked processes.

Importing torch and TRL takes longer than training, so this process imports and its children train. It never uses torch
itself, because a fork could break it.
"""

import gc
import json
import os
import resource
import signal
import sys
import traceback
from pathlib import Path

import numpy as np
import trl  # noqa: F401, imported before the forks
from conftest import SAVES
from tiny_model import SETTINGS, low_digit, make_tokenizer, rows
from transformers import LlamaForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

import budgetalloc as ba
from budgetalloc.trl import AdaptiveGRPOCallback
from budgetalloc.trl.checkpoints import last_checkpoint

POLICIES = {
    "adaptive": (lambda: ba.adaptive(seed=3), {}),
    "uniform": (lambda: ba.uniform(seed=3), {}),
    "pods": (lambda: ba.methods.pods(generate=2, seed=3), {}),
    "xrpo": (lambda: ba.methods.xrpo(seed=3), {}),
    "in rounds": (lambda: ba.methods.reinforce_ada(group=4, more=4, stages=3, seed=3), {}),
    "accumulation": (
        lambda: ba.knapsack(seed=3),
        {"steps_per_generation": 2, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2},
    ),
    "reuse": (lambda: ba.uniform(seed=3), {"num_iterations": 2, "save_steps": 2}),
}
EPOCH = 8  # rows: two generation batches of 4 prompts, so that most resumes are in a later epoch
# Where a run is stopped on purpose, in addition to random calls; and the files for which the disk is full.
IN_SAVING = ["state half written", "before TRL saves", "_save_optimizer_and_scheduler", "_save_rng_state"]
FULL_DISK = ["ledger", "state", "model"]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Fate(TrainerCallback):
    """Stops this process in its `after`-th step, or counts the calls of its second step."""

    def __init__(self, folder: Path, stop: str | None, after: int, calls: int) -> None:
        self.folder, self.stop, self.after, self.calls = folder, stop, after, calls
        self.last, self.seen = -1, 0

    def prepare(self, trainer: GRPOTrainer) -> None:
        """Wraps methods of the trainer, before the callback does."""
        self.trainer = trainer
        if self.stop in ("_save_optimizer_and_scheduler", "_save_rng_state", "before TRL saves"):
            name = "_save_checkpoint" if self.stop == "before TRL saves" else self.stop
            own = getattr(trainer, name)
            setattr(trainer, name, lambda *a: die() if self.seen >= self.after else own(*a))

    def at_reward(self, step: int) -> None:
        if step == self.last:  # another round
            return
        self.last, self.seen = step, self.seen + 1
        if self.stop == "chance" and self.seen == self.after:
            self._count(lambda n: n == self.calls and die())
        if self.stop is None and self.seen == 2:
            self.counted = 0
            self._count(lambda n: setattr(self, "counted", n))
        if self.stop is None and self.seen == 3:
            sys.setprofile(None)
            (self.folder / "calls").write_text(str(self.counted))
        if self.stop == "ledger" and self.seen == self.after:
            self._fill_disk((self.folder / "ledger.jsonl").stat().st_size + 100)

    def on_step_end(self, args, state, control, **_):
        if self.seen < self.after:
            return
        if self.stop == "state half written":
            os.replace = lambda *_: die()
        if self.stop == "state":
            self._fill_disk(300)
        if self.stop == "model":
            self._fill_disk(10_000)

    def _count(self, see) -> None:
        """Counts calls of Python and C functions, which do not depend on the speed of the machine."""
        counted = 0

        def call(*_):
            nonlocal counted
            counted += 1
            see(counted)

        sys.setprofile(call)

    def _fill_disk(self, size: int) -> None:
        """Limits the size of files, so that writing fails as it does on a full disk."""
        self.trainer.args.logging_steps = 10**6
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def train(folder: Path, model: str, name: str, steps: int, fate: Fate) -> None:
    def reward(completions, trainer_state, **_):
        fate.at_reward(trainer_state.global_step)
        return low_digit(completions)

    make, config = POLICIES[name]
    settings = SETTINGS | SAVES | {"learning_rate": 3e-3, "lr_scheduler_type": "constant", "logging_steps": 500}
    args = GRPOConfig(str(folder / "run"), **{**settings, "max_steps": steps, **config})
    trainer = GRPOTrainer(
        LlamaForCausalLM.from_pretrained(model),
        reward,
        args,
        train_dataset=rows(EPOCH),
        processing_class=make_tokenizer(),
    )
    trainer.add_callback(fate)
    fate.prepare(trainer)
    policy = make()
    trainer.add_callback(AdaptiveGRPOCallback(trainer, policy, ledger=folder / "ledger.jsonl"))
    trainer.train(resume_from_checkpoint=last_checkpoint(folder / "run"))
    weights = {key: value.numpy() for key, value in trainer.model.state_dict().items()}
    np.savez(folder / "weights.npz", **weights)
    ba.save_state(folder / "final.npz", policy.state_dict())


def live(folder: Path, model: str, name: str, steps: int, stop: str | None = None, after: int = 0, calls: int = 0):
    """Trains in a child, and returns how it ended: "done", "killed", or the error."""
    folder.mkdir(exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        try:
            train(folder, model, name, steps, Fate(folder, stop, after, calls))
        except BaseException as error:
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            (folder / "error").write_text(f"{type(error).__name__}: {error}")
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "killed" if os.WTERMSIG(status) == signal.SIGKILL else f"signal {os.WTERMSIG(status)}"
    return "done" if status == 0 else (folder / "error").read_text()


def one_case(folder: Path, model: str, name: str, chances: int) -> None:
    """Writes how each child ended; the last child of each run leaves its weights, beliefs and ledger."""
    folder.mkdir()
    rng = np.random.default_rng(11)
    stops = ["chance"] * chances + (IN_SAVING + FULL_DISK if name == "adaptive" else [])
    stops = [stops[at] for at in rng.permutation(len(stops)).tolist()]
    after = rng.integers(2, 4, len(stops)).tolist()  # generations until it is stopped: each child saves at least one
    steps = (sum(after) + 3) * POLICIES[name][1].get("num_iterations", 1)  # always one to be stopped in
    ended = {"whole": live(folder / "whole", model, name, steps)}
    calls = int((folder / "whole" / "calls").read_text())
    ended["stops"] = []
    for at, stop in enumerate(stops):
        how = live(folder / "stopped", model, name, steps, stop, after[at], int(rng.integers(1, calls)))
        ended["stops"].append((stop, how, resumed_in_epoch(folder / "stopped", name)))
    ended["last"] = live(folder / "stopped", model, name, steps)
    (folder / "ended.json").write_text(json.dumps(ended))


def resumed_in_epoch(folder: Path, name: str) -> int:
    """The epoch, counted from 0, in which the next child continues."""
    newest = last_checkpoint(folder / "run")
    steps = 0 if newest is None else int(newest.rpartition("-")[2])
    return steps // (EPOCH // 4 * POLICIES[name][1].get("num_iterations", 1))


def main() -> None:
    gc.freeze()  # what is imported: each training collects garbage
    for name, chances in json.loads(sys.argv[3]).items():
        one_case(Path(sys.argv[1]) / name, sys.argv[2], name, chances)


if __name__ == "__main__":
    main()

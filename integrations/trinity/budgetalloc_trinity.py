"""A policy chooses the tasks of Trinity-RFT: `data_selector.selector_type: budgetalloc_trinity.Selector`."""

import base64
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from trinity.buffer.selector.selector import BaseSelector

import budgetalloc as ba
from budgetalloc.policies.methods import method_of


class Selector(BaseSelector):
    """Each task gets `n` rollouts or none, because Trinity repeats the tasks of a taskset equally often.

    `data_selector.kwargs`: `n`, the taskset's `repeat_times`, and `policy`, a name of `budgetalloc methods` (default:
    thompson).
    """

    def __init__(self, data_source: Any, config: Any) -> None:
        super().__init__(data_source, config)
        self.n, self.size = int(config.kwargs["n"]), data_source.dataset_size
        self.policy = method_of(config.kwargs.get("policy", "thompson")).build(seed=config.seed)
        self.chosen, self.waiting = 0, set[int]()  # how many tasks in all, and which have no feedback yet

    def get_indices(self, batch_size: int, return_extra_info: bool = False) -> Any:
        groups = {"floor": 0, "cap": self.n, "quantum": self.n, "min_group": self.n}
        if self.size - len(self.waiting) < batch_size:
            self.waiting.clear()
        ids_P = [at for at in range(self.size) if at not in self.waiting]
        counts_P = self.policy.allocate(ids_P, ba.Budget(batch_size * self.n, **groups))
        indices = [ids_P[at] for at in np.flatnonzero(counts_P)]
        self.chosen += batch_size
        self.waiting.update(indices)
        return (indices, {}) if return_extra_info else indices

    def feedback(self, indices: list[int], values: list[float]) -> None:
        """The pass rates of the tasks of a step (PassRateCalculator), which are those of n rollouts each."""
        self.waiting.difference_update(indices)
        if not all(0 <= value <= 1 for value in values):
            raise ba.InputError(
                f"values={values}: use a reward of 0 or 1 for each rollout, for these to be pass rates."
            )
        passed_G = [round(value * self.n) for value in values]
        rewards_R = [float(at < passed) for passed in passed_G for at in range(self.n)]
        self.policy.observe(np.repeat(indices, self.n), rewards_R)

    def state_dict(self) -> dict[str, Any]:
        """JSON, as Trinity saves it: the policy's file, in letters."""
        with TemporaryDirectory() as folder:
            file = Path(folder, "state.npz")
            ba.save_state(file, self.policy.state_dict())
            return {"current_index": self.chosen, "budgetalloc": base64.b64encode(file.read_bytes()).decode()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.chosen = state_dict.get("current_index", 0)
        if "budgetalloc" in state_dict:
            with TemporaryDirectory() as folder:
                file = Path(folder, "state.npz")
                file.write_bytes(base64.b64decode(state_dict["budgetalloc"]))
                self.policy.load_state_dict(ba.load_state(file)[0])

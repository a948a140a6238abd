"""For Trinity-RFT: a selector of tasks, in this file, which must not be called trinity.py.

In the taskset, set `data_selector.selector_type: budgetalloc_trinity.Selector`.
"""

import json
from typing import Any

import numpy as np
from trinity.buffer.selector.selector import BaseSelector

import budgetalloc as ba
from budgetalloc.methods.table import method_of


class Selector(BaseSelector):
    """Each task gets `kwargs.n` rollouts (the taskset's `repeat_times`) or none, by `kwargs.policy` (thompson)."""

    def __init__(self, data_source: Any, config: Any) -> None:
        super().__init__(data_source, config)
        self.n, self.size, self.chosen = int(config.kwargs["n"]), data_source.dataset_size, 0
        self.policy = method_of(config.kwargs.get("policy", "thompson")).build(seed=config.seed)
        self.waiting = set[int]()  # tasks without feedback yet

    def get_indices(self, batch_size: int, return_extra_info: bool = False) -> Any:
        if self.size - len(self.waiting) < batch_size:
            self.waiting.clear()
        ids_P = sorted(set(range(self.size)) - self.waiting)
        budget = ba.Budget(batch_size * self.n, floor=0, cap=self.n, quantum=self.n, min_group=self.n)
        indices = np.repeat(ids_P, self.policy.allocate(ids_P, budget) > 0).tolist()
        self.chosen += batch_size
        self.waiting.update(indices)
        return (indices, {}) if return_extra_info else indices

    def feedback(self, indices: list[int], values: list[float]) -> None:
        """Learns the pass rates of a step's tasks (PassRateCalculator), each over n rollouts."""
        self.waiting.difference_update(indices)
        if not all(0 <= value <= 1 for value in values):
            raise ba.InputError(
                f"values={values}: use a reward of 0 or 1 for each rollout, for these to be pass rates."
            )
        passed_GN = np.arange(self.n) < np.rint(np.multiply(values, self.n))[:, None]
        self.policy.observe(np.repeat(indices, self.n), passed_GN.ravel())

    def state_dict(self) -> dict[str, Any]:
        """The state in JSON types, which Trinity saves."""
        state = json.loads(json.dumps(self.policy.state_dict(), default=np.ndarray.tolist))
        return {"current_index": self.chosen, "budgetalloc": state}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.chosen = state_dict.get("current_index", 0)
        if "budgetalloc" in state_dict:
            self.policy.load_state_dict(state_dict["budgetalloc"])

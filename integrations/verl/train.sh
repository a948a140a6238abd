#!/usr/bin/env bash
# GRPO on GSM8K with verl and adaptive rollout counts, on one node of GPUs: edit DATA, MODEL and gsm8k.yaml.
#   verl's examples/data_preprocess/gsm8k.py writes train.parquet and test.parquet into DATA. Arguments are added to the
#   command:  bash train.sh +budgetalloc.policy=uniform
set -euo pipefail
DATA=${DATA:-$HOME/data/gsm8k}
MODEL=${MODEL:-Qwen/Qwen2.5-0.5B-Instruct}
GPUS=${GPUS:-$(python -c "import torch; print(torch.cuda.device_count())")}
if [ "$GPUS" -lt 1 ]; then
    echo "train.sh: no GPU was found, and Ray would wait for one without a word." >&2
    exit 1
fi

exec python -m verl.trainer.main_ppo --config-path "$(cd "$(dirname "$0")" && pwd)" --config-name gsm8k \
    data.train_files="$DATA/train.parquet" data.val_files="$DATA/test.parquet" \
    actor_rollout_ref.model.path="$MODEL" trainer.n_gpus_per_node="$GPUS" "$@"

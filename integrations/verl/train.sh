#!/usr/bin/env bash
# GRPO on GSM8K with verl's V1 trainer and adaptive rollout counts, on one node of 8 GPUs.
#   python -m verl.... examples/data_preprocess/gsm8k.py writes the parquet files: columns data_source, prompt,
#   reward_model and extra_info. Arguments are added to the command:
#   bash integrations/verl/train.sh +budgetalloc.policy=uniform trainer.n_gpus_per_node=1
set -euo pipefail
DATA=${DATA:-$HOME/data/gsm8k}
MODEL=${MODEL:-Qwen/Qwen2.5-0.5B-Instruct}

exec python -m verl.trainer.main_ppo --config-path "$(cd "$(dirname "$0")" && pwd)" --config-name gsm8k \
    data.train_files="$DATA/train.parquet" data.val_files="$DATA/test.parquet" \
    actor_rollout_ref.model.path="$MODEL" "$@"

#!/usr/bin/env bash
# AReaL's trainer for the fleet `areal`: in a pod of the namespace with AReaL's repository, the
# claims `models` and `weights`, and four GPUs. AReaL uses servers that it did not start only in
# its mode of one process a GPU.
set -euo pipefail

: "${CONFIG:=examples/math/gsm8k_grpo.yaml}"
export AREAL_SPMD_MODE=1
export AREAL_LLM_SERVER_ADDRS=areal-proxy:8080,areal-proxy:8081
# The name in the path of the versions, also for a user that /etc/passwd does not have.
export LOGNAME=areal

torchrun --nproc-per-node=4 examples/math/gsm8k_rl.py --config "$CONFIG" \
  experiment_name=gsm8k \
  trial_name=one \
  cluster.fileroot=/weights \
  actor.path=/models/Qwen/Qwen2.5-1.5B-Instruct \
  actor.backend=fsdp:d4 \
  actor.weight_update_mode=disk \
  rollout.backend=vllm:d2 \
  "$@"

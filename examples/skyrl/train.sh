#!/usr/bin/env bash
# SkyRL's trainer for the fleet `skyrl` of the namespace NAMESPACE. Its clients send no header
# with a key, so the fleet's token stands in the URLs of the workers.
set -euo pipefail

: "${NAMESPACE:=default}" "${REPLICAS:=2}" "${DATA_DIR:=$HOME/data/gsm8k}"
TOKEN=$(kubectl -n "$NAMESPACE" get secret skyrl-admin -o jsonpath='{.data.token}' | base64 -d)

SERVERS=""
for ((i = 0; i < REPLICAS; i++)); do
  SERVERS+="${SERVERS:+,}'http://rl:$TOKEN@skyrl-$i.skyrl-workers.$NAMESPACE.svc:8090'"
done

uv run --isolated --extra fsdp -m skyrl.train.entrypoints.main_base \
  data.train_data="['$DATA_DIR/train.parquet']" \
  data.val_data="['$DATA_DIR/validation.parquet']" \
  environment.env_class=gsm8k \
  trainer.policy.model.path=Qwen/Qwen2.5-1.5B-Instruct \
  trainer.policy.model.lora.rank=32 \
  trainer.policy.model.lora.alpha=32 \
  trainer.policy.model.lora.lora_sync_path=/weights/skyrl \
  trainer.algorithm.advantage_estimator=grpo \
  trainer.strategy=fsdp \
  trainer.placement.colocate_all=false \
  trainer.placement.policy_num_gpus_per_node=4 \
  trainer.placement.ref_num_gpus_per_node=4 \
  generator.inference_engine.backend=vllm \
  generator.inference_engine.run_engines_locally=false \
  generator.inference_engine.external_proxy_url="http://skyrl.$NAMESPACE.svc:8000" \
  generator.inference_engine.external_server_urls="[$SERVERS]" \
  "$@"

"""vLLM 0.32's reply to GET /server_info, shortened; parts of it must not leave the pod."""

from typing import Any

SERVER_INFO: dict[str, Any] = {
    "vllm_config": {
        "model_config": {
            "model": "/secret",
            "served_model_name": "fake",
            "dtype": "torch.bfloat16",
            "max_model_len": 4096,
            "logprobs_mode": "raw_logprobs",
            "hf_token": "hf_secret",
            "hf_config": "Qwen2Config",
        },
        "parallel_config": {"data_parallel_size": 1, "data_parallel_master_ip": "10.0.0.1"},
        "load_config": {"download_dir": "/secret"},
        "lora_config": {"max_lora_rank": 8, "max_loras": 4, "max_cpu_loras": 16},
        "weight_transfer_config": None,
        "instance_id": "secret",
    },
    "vllm_env": {"VLLM_HOST_IP": "10.0.0.1"},
    "system_env": {"pip_packages": "secret"},
}

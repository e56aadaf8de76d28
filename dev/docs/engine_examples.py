"""One example for each of the engine's routes that samplers use.

docs/reference/http.md shows them. They are played against a worker that serves step-1, whose
model goes by the name of qwen (tests/contract/sidecar/test_http_examples.py), and once more against
real vLLM (tests/e2e/test_contract.py); so they show of a reply what any model answers.
"""

from dev.docs.http_example import Example

_PROMPT = [11, 12, 13]
_CHAT = {"model": "qwen", "messages": [{"role": "user", "content": "one"}], "max_tokens": 4}

EXAMPLES: tuple[Example, ...] = (
    Example("GET /health", ""),
    Example("GET /liveness", {"status": "ok"}),
    Example("GET /version", '{"version":', has_more=True),
    Example("GET /metrics", "vllm:num_requests_running{", has_more=True),
    Example("GET /v1/models", {"object": "list"}, has_more=True),
    # Without vLLM's --enable-tokenizer-info-endpoint.
    Example("GET /tokenizer_info", {"detail": "Not Found"}, status=404),
    Example(
        "POST /v1/completions",
        {"object": "text_completion", "model": "qwen"},
        {"model": "qwen", "prompt": _PROMPT, "max_tokens": 4, "cache_salt": "run-7"},
        has_more=True,
    ),
    Example("POST /v1/chat/completions", {"object": "chat.completion"}, _CHAT, has_more=True),
    Example(
        "POST /v1/chat/completions",
        {"prompt_token_ids": _PROMPT},
        {"model": "qwen", "tokens": _PROMPT, "max_tokens": 4, "return_token_ids": True},
        has_more=True,
    ),
    Example(
        "POST /v1/chat/completions/tokens",
        {"nvext": {"prompt_token_ids": _PROMPT}},
        _CHAT | {"tokens": _PROMPT, "nvext": {"extra_fields": ["prompt_token_ids"]}},
        has_more=True,
    ),
    Example(
        "POST /inference/v1/generate",
        {"model": "qwen"},
        {"token_ids": _PROMPT, "sampling_params": {"max_tokens": 4, "logprobs": 1}},
        has_more=True,
    ),
    Example(
        "POST /tokenize",
        {"count": 1, "token_strs": ["a"]},
        {"model": "qwen", "prompt": "a", "return_token_strs": True},
        has_more=True,
    ),
    Example("POST /detokenize", '{"prompt":"', {"model": "qwen", "tokens": _PROMPT}, has_more=True),
)

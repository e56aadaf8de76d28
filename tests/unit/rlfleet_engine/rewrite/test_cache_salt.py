"""What becomes of a body that has a salt, and of one that has none."""

import json
from typing import Any

import pytest

from rlfleet_engine.gate.gate import EngineVersion
from rlfleet_engine.rewrite.cache_salt import in_era, may_have_salt, salted

ONE, TWO = EngineVersion(b"step-1", 1), EngineVersion(b"step-2", 2)


def salt_of(body: bytes, holding: EngineVersion = ONE) -> Any:
    return json.loads(salted(body, holding))["cache_salt"]


def body_of(**fields: Any) -> bytes:
    return json.dumps({"prompt": "x"} | fields).encode()


SALTED = body_of(cache_salt="a")
PLACES = {
    "top level": SALTED,
    "nvext": body_of(nvext={"cache_salt": "a", "extra_fields": ["token_ids"]}),
    "sampling_params": body_of(sampling_params={"cache_salt": "a", "max_tokens": 1}),
    "all, the top level first": body_of(
        cache_salt="a", nvext={"cache_salt": "b"}, sampling_params={"cache_salt": "c"}
    ),
    "nvext before sampling_params": body_of(
        cache_salt=None, nvext={"cache_salt": "a"}, sampling_params={"cache_salt": "c"}
    ),
    "escaped": rb'{"prompt": "x", "cache\u005fsalt": "\u0061"}',
    "twice, the last counts": b'{"prompt": "x", "cache_salt": "b", "cache_salt": "a"}',
    "UTF-16": SALTED.decode().encode("utf-16"),
    "UTF-32": SALTED.decode().encode("utf-32-le"),
}


@pytest.mark.parametrize("body", PLACES.values(), ids=PLACES)
def test_one_salt_is_one_salt_wherever_it_stands(body: bytes) -> None:
    made = json.loads(salted(body, ONE))

    assert made["cache_salt"] == salt_of(SALTED)
    assert "cache_salt" not in made.get("nvext", {})
    assert "cache_salt" not in made.get("sampling_params", {})
    assert made["prompt"] == "x"


def test_a_salt_differs_with_the_client_s_the_version_and_the_change() -> None:
    again = EngineVersion(b"step-1", 3)
    salts = [
        salt_of(body_of(cache_salt=salt), holding)
        for salt in ("a", "b", "a/@" * 99, "\ud800")
        for holding in (ONE, TWO, again)
    ]

    assert len(set(salts)) == len(salts)


def test_the_digest_s_parts_cannot_be_shifted() -> None:
    shifted = [
        (EngineVersion(b"v", 1), "1a"),
        (EngineVersion(b"v", 11), "a"),
        (EngineVersion(b"v1", 1), "a"),
        (EngineVersion(b"v", 1), "1\0a"),
    ]

    assert len({salt_of(body_of(cache_salt=salt), holding) for holding, salt in shifted}) == 4


def test_a_client_that_sends_the_digest_itself_gets_another() -> None:
    made = salt_of(SALTED)

    assert salt_of(body_of(cache_salt=made)) != made


def test_a_salt_is_one_that_vllm_takes() -> None:
    made = salt_of(body_of(cache_salt="any@thing/at\\all" * 20))

    assert isinstance(made, str)
    assert 0 < len(made) <= 128
    assert made.isalnum()


UNTOUCHED = {
    "no salt": body_of(),
    "null": body_of(cache_salt=None, nvext={"cache_salt": None}),
    "the word alone": body_of(prompt="cache_salt"),
    "deeper": body_of(metadata={"cache_salt": "a"}),
    "no object": b'["cache_salt"]',
    "no JSON": b'{"cache_salt": ',
    "nothing": b"",
    "too deep": b'{"cache_salt":' + b"[" * 100_000,
    "not UTF-8": b'{"cache_salt": "\xff"}',
}


@pytest.mark.parametrize("body", UNTOUCHED.values(), ids=UNTOUCHED)
def test_a_body_without_a_salt_passes_byte_for_byte(body: bytes) -> None:
    assert salted(body, ONE) is body


@pytest.mark.parametrize("salt", ["", 7, False, [], {"a": 1}])
def test_a_salt_that_is_no_text_is_left_to_vllm_at_the_top_level(salt: object) -> None:
    for body in (body_of(cache_salt=salt), body_of(sampling_params={"cache_salt": salt})):
        assert salt_of(body) == salt


GENERATE = "/inference/v1/generate"


def era_of(body: bytes, era: int, path: str = GENERATE) -> Any:
    return json.loads(in_era(body, era, path))["cache_salt"]


def test_without_a_salt_all_of_one_era_share_one() -> None:
    body, null = body_of(), body_of(cache_salt=None, nvext={"cache_salt": None})

    assert era_of(body, 1) == era_of(null, 1)
    assert era_of(body, 1) != era_of(body, 2)
    assert json.loads(in_era(body, 1, GENERATE))["prompt"] == "x"


def test_no_client_s_salt_is_an_era_s() -> None:
    made = era_of(body_of(), 1)

    for salt in ("1", "", made):
        assert salt_of(body_of(cache_salt=salt or "\0"), EngineVersion(b"", 1)) != made


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/rerank", "/tokenize"])
def test_what_does_not_generate_gets_no_salt(path: str) -> None:
    body = body_of()

    assert in_era(body, 1, path) is body


@pytest.mark.parametrize("body", [b"", b"[]", b'{"prompt": ', b'{"a": "\xff"}'])
def test_what_is_no_object_gets_none_either(body: bytes) -> None:
    assert in_era(body, 1, GENERATE) is body


def test_nothing_else_of_the_body_changes() -> None:
    rest = {
        "prompt": "é \U0001f600 \udc00",
        "token_ids": [0, 2**63, -1],
        "temperature": 0.1,
        "seed": 10**30,
        "top_p": 1e-320,
        "nested": {"": [None, True, 1.0]},
    }

    assert json.loads(salted(json.dumps(rest | {"cache_salt": "a"}).encode(), ONE)) == rest | {
        "cache_salt": salt_of(SALTED)
    }


HEADS: dict[str, tuple[str, str, str, bool]] = {
    "completions": ("POST", "/v1/completions", "application/json", True),
    "chat": ("POST", "/v1/chat/completions", "Application/JSON; charset=utf-8", True),
    "with tokens": ("POST", "/v1/chat/completions/tokens", "application/json", True),
    "generate": ("POST", "/inference/v1/generate", "application/json", True),
    "another that vLLM salts": ("POST", "/v1/responses", "application/json", True),
    "a look": ("GET", "/v1/responses/1", "application/json", False),
    "a recording": ("POST", "/v1/audio/transcriptions", "multipart/form-data; boundary=x", False),
    "no type": ("POST", "/v1/completions", "", False),
    "tokenize": ("POST", "/tokenize", "application/json", False),
    "render": ("POST", "/v1/chat/completions/render", "application/json", False),
    "derender": ("POST", "/v1/completions/derender", "application/json", False),
}


@pytest.mark.parametrize(("method", "path", "kind", "expected"), HEADS.values(), ids=HEADS)
def test_the_head_decides_whether_the_body_is_read(
    method: str,
    path: str,
    kind: str,
    expected: bool,  # noqa: FBT001 - a table
) -> None:
    headers = [(b"content-type", kind.encode())] if kind else []

    scope = {"type": "http", "method": method, "path": path, "headers": headers}

    assert may_have_salt(scope) is expected

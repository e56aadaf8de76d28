"""No secret stays in a support bundle, wherever it stands; what helps stays."""

import json
import time
from typing import Any

import pytest

from rlfleet_kubectl.core import bundle, redaction
from rlfleet_kubectl.core.bundle import Bundle
from rlfleet_kubectl.core.secret_text import REMOVED

PLANTED = "pl4nted-S3cret_Value"
NAMES = (
    *("MINIMAX_API_KEY", "MAXMIND_LICENSE_KEY", "MAX_API_KEY", "ENUM_SECRET", "API_TOKENS"),
    *("auth-tokens", "accessTokens", "DB_PASS", "REDIS_PASS", "dbPass"),
)


@pytest.mark.parametrize(
    "line",
    [
        f"Authorization: Bearer {PLANTED}",
        f"authorization: basic {PLANTED}",
        f"'Authorization': 'Token {PLANTED}'",
        f'{{"message": "sent", "headers": {{"Authorization": "Bearer {PLANTED}"}}}}',
        f'{{"token": "{PLANTED}"}}',
        f'"{{\\"token\\": \\"{PLANTED}\\"}}"',
        f"GET /v1/rl/state?token={PLANTED}&x=1",
        f"https://bucket.s3/x?X-Amz-Signature={PLANTED}&X-Amz-Expires=60",
        f"https://bucket.blob/x?sv=2&sig={PLANTED}",
        f"https://user:{PLANTED}@host/path",
        f"s3://{PLANTED}@bucket/x",
        f"postgres://user:p@{PLANTED}@host/db",
        f"Authorization: ApiKey {PLANTED}",
        f'{{"authorization": "Splunk {PLANTED}"}}',
        f"--api-key={PLANTED}",
        f"password={PLANTED}",
        f"VLLM_API_KEY={PLANTED}",
        f"AWS_SECRET_ACCESS_KEY: {PLANTED}",
        f"PGPASSWORD={PLANTED}",
        *(f"{name}={PLANTED}" for name in NAMES),
        f"python train.py --wandb-api-key {PLANTED} --lr 1",
        f"mysql --password '{PLANTED} and more'",
        f'"bash -c \\"login --token {PLANTED}\\""',
        f"dbPassword: '{PLANTED}'",
        f"x-api-key: {PLANTED}",
        f"Set-Cookie: {PLANTED}",
        f"client_secret%3D{PLANTED}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{PLANTED}\nMII\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{PLANTED}",
        f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{PLANTED}\n-----END PGP PRIVATE KEY BLOCK-----",
        f"non-default args: {{'api_key': ['sk-other-key-of-old-times', '{PLANTED}']}}",
        f"env:\n- name: HF_TOKEN\n  value: {PLANTED}",
        f"password={PLANTED},{PLANTED};{PLANTED}",
        f'{{"token": "{PLANTED} of a line that was cut',
    ],
)
def test_a_secret_in_a_line_is_removed(line: str) -> None:
    cleaned = redaction.text(f"before {line}\nafter")

    assert PLANTED not in cleaned
    assert cleaned.startswith("before ")


@pytest.mark.parametrize(
    "token",
    [
        "hf_AbCdEfGhIjKlMnOpQrSt",
        "sk-abcdefghijklmnopqrst",
        "ghp_abcdefghijklmnopqrst",
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl",
    ],
)
def test_a_token_of_a_known_form_is_removed_without_a_name(token: str) -> None:
    assert token not in redaction.text(f"got {token} from somewhere")


@pytest.mark.parametrize(
    "line",
    [
        'vllm:generation_tokens_total{engine="0",model_name="qwen"} 116.0',
        "max_tokens=1024, prompt tokens: 880",
        "--tokenizer=/data/models/qwen --max-model-len=1024",
        "rlfleet_leader 1.0",
        'Secret "qwen-admin" not found',
        '{"message": "Worker lost", "fleet": "qwen", "worker": 3}',
        "serviceAccountName: rlfleet, secretName: qwen-admin",
        "RLFLEET_TOKEN_FILE=/var/run/rlfleet/token/token",
        'MountVolume.SetUp failed for volume "token" : failed to sync secret cache',
        "HF_HUB_OFFLINE is 1",
        "# HELP vllm:inter_token_latency_seconds Histogram of inter-token latency in seconds.",
        "back-off 2m40s restarting failed container=engine pod=oom-0",
        "the monkey=4 designed=x authority=z keyboard=y",
        "topologyKey: kubernetes.io/hostname",
        "max_tokens=many num_tokens=many MAX_NUM_SEQS=many num_key_value_heads=many maxTokens=many",
        "passed: nothing, bypass=nothing",
        "vllm serve --tokenizer /data/models/qwen --max-tokens 1024000 --port 8000",
        f"--api-key {REMOVED}, --port 80",
        'failed calling webhook: Post "https://hooks.cert-manager.svc/validate-v1alpha1-fleet?x=1"',
        "docker run -u 1000:1000 -p 8080:80 image; mkdir -p a; kubectl -n a -l token,app",
        "login of a user with a password failed",
    ],
)
def test_what_helps_stays(line: str) -> None:
    assert redaction.text(line) == line


def pod(**engine: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": "qwen-0", "annotations": {}, "managedFields": [{"manager": "x"}]},
        "spec": {"containers": [{"name": "engine", **engine}]},
    }


def places() -> list[tuple[str, dict[str, Any]]]:
    """Return objects with the secret, one for each place."""
    applied = json.dumps(pod(env=[{"name": "HF_TOKEN", "value": PLANTED}]))
    annotated = pod()
    annotated["metadata"]["annotations"] = {redaction.LAST_APPLIED: applied}
    other = pod()
    other["metadata"]["annotations"] = {"example.com/api-token": PLANTED, "note": "kept"}
    labelled = pod()
    labelled["metadata"]["labels"] = {"auth": PLANTED}
    event = {"kind": "Event", "message": f"failed: GET https://u:{PLANTED}@host/x"}
    fleet = {"kind": "RLInferenceFleet", "spec": {"engine": {"extraEnv": []}}, "status": {}}
    fleet["spec"] = {"engine": {"extraEnv": [{"name": "VLLM_API_KEY", "value": PLANTED}]}}
    message = {"kind": "RLInferenceFleet", "status": {"rollout": {"message": f"token={PLANTED}"}}}
    probe = {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": f"Bearer {PLANTED}"}]}}
    return [
        ("a variable", pod(env=[{"name": "VLLM_API_KEY", "value": PLANTED}])),
        ("a flag", pod(args=[f"--api-key={PLANTED}"])),
        ("an argument after its flag", pod(args=["--api-key", PLANTED, "--port", "80"])),
        *((f"a variable {one}", pod(env=[{"name": one, "value": PLANTED}])) for one in NAMES),
        ("a flag in a shell's command", pod(command=["sh", "-c", f"run --hf-token {PLANTED}"])),
        ("a shell's command", pod(command=["sh", "-c", f"export TOKEN={PLANTED}; run"])),
        ("a URL in a flag", pod(args=[f"--source=https://user:{PLANTED}@host/x"])),
        ("JSON in a flag", pod(args=[f'--config={{"password": "{PLANTED}"}}'])),
        *(
            (f"a variable {one}", pod(env=[{"name": one, "value": PLANTED}]))
            for one in ("GITHUB_PAT", "X_JWT", "BLOB_SAS")
        ),
        ("a header in a command", pod(command=[f"curl -H 'Authorization: ApiKey {PLANTED}' x"])),
        ("a URL with an at sign", pod(args=[f"--db=postgres://user:p@{PLANTED}@host/db"])),
        ("what was applied last", annotated),
        ("another annotation", other),
        ("a label", labelled),
        ("an event", event),
        ("a fleet's variable", fleet),
        ("a fleet's message", message),
        ("a probe's header", pod(livenessProbe=probe)),
        ("a field of its name", {"kind": "X", "data": {"clientSecret": PLANTED}}),
    ]


@pytest.mark.parametrize("raw", [one[1] for one in places()], ids=[one[0] for one in places()])
def test_a_secret_in_an_object_is_removed(raw: dict[str, Any]) -> None:
    assert PLANTED in json.dumps(raw)
    assert PLANTED not in json.dumps(redaction.document(raw, redaction.learned([raw])))


def test_what_was_learned_from_an_object_is_removed_from_logs_too() -> None:
    made = Bundle()
    made.documents["objects/pods.json"] = [pod(env=[{"name": "API_KEY", "value": PLANTED}])]
    made.texts["logs/engine.log"] = f"args: Namespace(unnamed=[{PLANTED!r}])\n"
    made.documents["objects/more.json"] = [pod(command=["run --api-key 0123abcd"])]
    made.texts["logs/more.log"] = "got 0123abcd\n"
    made.unread["metrics"] = f"cannot reach {PLANTED}"

    files = made.files({"made": "now"})
    assert [name for name, text in files.items() if PLANTED in text] == []
    assert REMOVED in files["logs/engine.log"]
    assert files["logs/more.log"] == f"got {REMOVED}\n"


def test_what_was_removed_once_is_left_as_it_is() -> None:
    once = redaction.text(f"--api-key={PLANTED} Authorization: Bearer {PLANTED}", [PLANTED])

    assert once.startswith(f"--api-key={REMOVED} Authorization: ")
    assert redaction.text(once) == once


def test_nothing_is_learned_from_prose_or_words() -> None:
    event = {"kind": "Event", "message": 'volume "token": failed', "note": "auth: whatever"}
    mode = pod(env=[{"name": "RLFLEET_AUTH", "value": "disabled"}])

    assert redaction.learned([event, mode]) == frozenset()


def test_an_object_keeps_what_is_no_secret() -> None:
    raw = pod(
        image="worker:1",
        args=["--model=/data", "--api-key", PLANTED, "--port", "80"],
        env=[
            {"name": "HOME", "value": "/home/x"},
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
        ],
    )
    cleaned = redaction.document(raw)

    (engine,) = cleaned["spec"]["containers"]
    assert engine["args"] == ["--model=/data", "--api-key", REMOVED, "--port", "80"]
    assert engine["env"] == raw["spec"]["containers"][0]["env"]
    assert "managedFields" not in cleaned["metadata"]


def test_the_manifest_lists_each_file_and_what_could_not_be_read() -> None:
    made = Bundle()
    made.texts["logs/a.log"] = "one\n"
    made.unread["logs/b"] = "Forbidden"

    manifest = json.loads(made.files({"plugin": "0.1.0"})[bundle.MANIFEST])
    assert manifest == {
        "plugin": "0.1.0",
        "files": {"logs/a.log": 4},
        "unread": {"logs/b": "Forbidden"},
    }


def test_of_a_log_that_is_too_long_the_newest_lines_stay() -> None:
    assert bundle.newest("one\ntwo\nthree\n", most=9) == "three\n"
    assert bundle.newest("one\ntwo\n", most=8) == "one\ntwo\n"


def test_the_logs_of_a_large_fleet_fit_into_memory_together() -> None:
    assert bundle.most_of_each(3) == bundle.LOG_CHARACTERS
    assert 2000 * bundle.most_of_each(2000) <= 400_000_000
    assert bundle.most_of_each(100_000) >= 100_000


def test_it_says_after_each_file_that_it_is_done() -> None:
    made, done = Bundle({"a.json": {}}, {"b.log": "one\n"}), list[int]()
    made.files({}, lambda: done.append(1))

    assert len(done) == made.count == 2


@pytest.mark.parametrize(
    "head",
    ["token: |", "token: >-", "api_key: |2-  # of the hub", "password: !!str &p |", "- token: |+"],
)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_of_a_block_of_yaml_each_line_is_removed(head: str, ending: str) -> None:
    lines = ["kind: x", f"  {head}", "", f"    {PLANTED}", "", f"      {PLANTED}", "  next: seen"]

    cleaned = redaction.text(ending.join([*lines, ""]))
    assert PLANTED not in cleaned
    assert "next: seen" in cleaned


def test_a_block_of_yaml_is_removed_from_logs_and_from_json_too() -> None:
    stamp = "2026-11-28T00:00:01.123Z"
    log = f"{stamp} token: |\n{stamp}   {PLANTED}\n{stamp}   {PLANTED}\n{stamp} next: seen\n"
    values = f"{stamp} passwords:\n{stamp} - {PLANTED}\n{stamp} - {PLANTED}\n{stamp} next: seen\n"
    for text in (log, values):
        cleaned = redaction.text(text)
        assert PLANTED not in cleaned
        assert f"{stamp} next: seen\n" in cleaned

    config = f"a: 1\ntoken: |\n  {PLANTED}\n  {PLANTED}"
    line = json.dumps({"config": f"{config}\nnext: seen", "end": config, "worker": 3})
    found = json.loads(redaction.text(line))
    assert PLANTED not in json.dumps(found)
    assert found["config"].endswith("\nnext: seen")
    assert found["worker"] == 3


@pytest.mark.parametrize(
    "written",
    [
        f"password:\n      {PLANTED}",
        f"password: first-part\n    {PLANTED}",
        f'password: "first\n    {PLANTED}"',
        f"password: 'first\n    {PLANTED}'",
        f"password:\n    value: {PLANTED}",
        f"name: HF_TOKEN\n  value:\n    {PLANTED}",
        f"api_keys: [\n    first-part,\n    {PLANTED}\n  ]",
        f'"api_keys": [\n    "first-part",\n    "{PLANTED}"\n  ],',
        f'password = """\n  first\n  {PLANTED}"""',
        f"password = '''first\n  {PLANTED}\n  '''",
    ],
)
def test_a_value_that_continues_in_the_next_line_is_removed(written: str) -> None:
    text = f"kind: x\n  {written}\n  next: seen\n"
    stamp = "2026-11-28T00:00:01.123Z "
    log = "".join(f"{stamp}{line}\n" for line in text.splitlines())

    for one in (text, log):
        cleaned = redaction.text(one)
        assert PLANTED not in cleaned
        assert cleaned.endswith("  next: seen\n")


def test_values_of_the_next_line_are_removed_within_json_too() -> None:
    config = f'password:\n  {PLANTED}\napi_key = """\n{PLANTED}\n"""\nnext: seen'

    found = json.loads(redaction.text(json.dumps({"config": config, "worker": 3})))
    assert PLANTED not in found["config"]
    assert found["config"].endswith("\nnext: seen")


def test_lines_below_a_secret_s_name_that_hold_fields_stay() -> None:
    written = "secret:\n  name: qwen-admin\ntoken:\nuser: seen\nauth:\n  mode: none\n"

    assert redaction.text(written) == written


def test_each_value_of_several_lines_is_learned() -> None:
    lists = f'api_keys: [{PLANTED}, "other-Secret"]\npassword = """\nthird-Secret\n"""\n'
    known = redaction.learned([pod(env=[{"name": "CONFIG", "value": lists}])])

    assert redaction.text(f"read {PLANTED} other-Secret third-Secret", known) == (
        f"read {REMOVED} {REMOVED} {REMOVED}"
    )


def test_each_line_of_a_block_of_yaml_is_learned() -> None:
    config = f"token: |\n  {PLANTED}\n  another-Secret-Line\n"
    known = redaction.learned([pod(env=[{"name": "CONFIG", "value": config}])])

    assert redaction.text(f"read {PLANTED} another-Secret-Line", known) == (
        f"read {REMOVED} {REMOVED}"
    )


def test_a_line_of_json_stays_json_without_a_quoted_secret() -> None:
    line = json.dumps({"message": f'ran login --token "{PLANTED}" --port 1', "worker": 3})

    message = json.loads(redaction.text(line))["message"]
    assert message == f'ran login --token "{REMOVED}" --port 1'


def test_a_large_log_takes_no_longer_than_a_user_waits() -> None:
    line = '{"time": "2026", "message": "Worker asked", "fleet": "qwen", "worker": 3, "key": 7}\n'
    began = time.process_time()
    redaction.text(line * 60_000, known=[PLANTED])

    assert time.process_time() - began < 4

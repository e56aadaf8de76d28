"""No secret that a command line, a log or a file of settings shows stays in a support bundle."""

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlfleet_kubectl.core import redaction

NAMES = ("--api-key", "--token", "HF_TOKEN", "dbPassword", "x-api-key", "GITLAB_ACCESS_TOKEN")
FLAGS = ("--api-key", "--token", "--db-password")
BARE = (
    *("curl -u admin:{}", "curl --user=admin:{} https://host/", "wget --proxy-user 'a:{}'"),
    *("mysql -h db -u root -p{} shop", "mysqldump --all -p{}", "mariadb-dump -p{}"),
    *("sshpass -p {} ssh host", "redis-cli -h host -a {} ping", "docker login -u me -p {} reg"),
    *("machine host login me password {}", "machine host\n\tlogin me\n\tpassword {}"),
    *("https://hooks.slack.com/services/T0AB12CD/B0AB12CD/{}0123456789abcdefghij",),
    "https://discord.com/api/webhooks/123/{}0123456789abcdefghij",
)
ARGV = (
    *(("run", flag, "{}") for flag in FLAGS),
    *(("sh", "-c", f"run {flag} '{{}}'") for flag in FLAGS),
    *(("curl", "-u", "me:{}"), ("mysql", "-h", "db", "-p{}"), ("redis-cli", "-a", "{}")),
)
LETTERS = string.ascii_letters + string.digits
WORDS = st.text(LETTERS + "_+.~^%", min_size=4).map(lambda one: f"q{one}Z")
"""What stands anywhere without quotes."""
ANY = st.text(LETTERS + " ,;&/'\"\\{}[]()=:@!é", min_size=4).map(lambda one: f"q{one}Z")
"""What stands in a string of JSON."""
DEPTH = st.integers(0, 3)
"""How often a line was put into a string of JSON, as a log of a log is."""


def nested(line: str, depth: int) -> str:
    for _ in range(depth):
        line = json.dumps({"message": line})
    return line


@pytest.mark.parametrize("line", BARE)
@given(secret=WORDS, depth=DEPTH)
def test_a_secret_of_a_known_program_or_file_is_removed(line: str, secret: str, depth: int) -> None:
    cleaned = redaction.text(nested(f"before {line.format(secret)}\nafter", depth))

    assert secret not in cleaned
    assert "before" in cleaned
    assert "after" in cleaned


@pytest.mark.parametrize("name", NAMES)
@given(secret=ANY, depth=DEPTH)
def test_a_secret_in_json_is_removed_at_any_depth(name: str, secret: str, depth: int) -> None:
    line = json.dumps({"name": name, "value": secret, name: secret, "last": 1})
    cleaned = redaction.text(nested(line, depth))

    assert secret_of(json.dumps(secret), depth) not in cleaned
    assert "last" in cleaned


def secret_of(line: str, depth: int) -> str:
    """Return what is between the quotes of a string, as deep as in the line."""
    return (json.dumps(line)[1:-1] if depth else line).strip('\\"')


@pytest.mark.parametrize("argv", ARGV, ids=" ".join)
@given(secret=WORDS, depth=DEPTH)
def test_a_secret_argument_is_removed_from_objects_and_from_lists_in_logs(
    argv: tuple[str, ...], secret: str, depth: int
) -> None:
    args = [one.format(secret) for one in argv]
    raw = {"spec": {"containers": [{"args": [*args, "--port", "80"]}]}}

    cleaned = json.dumps(redaction.document(raw))
    assert secret not in cleaned
    assert '"--port", "80"' in cleaned
    for shown in (json.dumps(args), repr(args), " ".join(args)):
        assert secret not in redaction.text(nested(f"args: {shown}", depth))


@given(st.text(string.ascii_letters + string.digits + " =:,.'\"-/@[]{}\\\n", max_size=400))
def test_a_cleaned_text_stays_as_it_is(written: str) -> None:
    once = redaction.text(written)

    assert redaction.text(once) == once

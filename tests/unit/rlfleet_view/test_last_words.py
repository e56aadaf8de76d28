"""The line that says why a container ended, of ends of logs that vLLM 0.32 wrote."""

import pytest

from rlfleet_view.last_words import last_words

ARGUMENT = """\
                     [--enable-log-requests | --no-enable-log-requests]
                     [model_tag]
api_server.py: error: unrecognized arguments: --bogus=3
"""
FOLDER = """\
    raise HFValidationError(
huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or \
'namespace/repo_name': '/data/models/none'. Use `repo_type` argument if needed.
"""
CONFIG = """\
    s.__pydantic_validator__.validate_python(ArgsKwargs(args, kwargs), self_instance=s)
pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig
  Value error, Cannot find the config file for awq [type=value_error, input_value=ArgsKwargs()]
    For further information visit https://errors.pydantic.dev/2.14/v/value_error
"""
CORE = """\
(EngineCore pid=21) ERROR 11-27 09:55:53 [core.py:1002] ValueError: No available memory for the \
cache blocks.
(APIServer pid=1) Traceback (most recent call last):
(APIServer pid=1)   File "/opt/vllm/lib/vllm/v1/engine/utils.py", line 900, in wait_for_engine
(APIServer pid=1)     raise RuntimeError(
(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed \
core proc(s): {}
"""


SERVING = """\
(APIServer pid=1) INFO 11-27 09:30:56 [launcher.py:195] Route: /pause, Methods: POST
(APIServer pid=1) INFO 11-27 09:31:06 [loggers.py:310] Engine 000: Avg prompt throughput: 0.3
"""
NOT_FOUND = "exec: python3: executable file not found in $PATH"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (ARGUMENT, "api_server.py: error: unrecognized arguments: --bogus=3"),
        (
            FOLDER,
            (
                "HFValidationError: Repo id must be in the form 'repo_name' or"
                " 'namespace/repo_name': '/data/models/none'. Use `repo_typ…"
            ),
        ),
        (
            CONFIG,
            (
                "ValidationError: 1 validation error for VllmConfig Value error, Cannot find"
                " the config file for awq [type=value_error, …"
            ),
        ),
        (CORE, "ValueError: No available memory for the cache blocks."),
        (
            CORE.partition("\n")[2],
            (
                "RuntimeError: Engine core initialization failed. See root cause above. Failed core"
                " proc(s): {}"
            ),
        ),
        (SERVING, ""),
        ("exec: python3: executable file not found in $PATH\n", NOT_FOUND),
        ("", ""),
        (None, ""),
    ],
    ids=[
        *("an argument", "a folder", "a config", "a cause above", "a cause that is cut off"),
        *("no error", "the runtime's", "nothing", "none"),
    ],
)
def test_the_line_that_says_why_is_found(log: str | None, said: str) -> None:
    assert last_words({"exitCode": 1, "message": log}) == said
    assert len(said) <= 120


@pytest.mark.parametrize("code", [137, 143])
def test_the_log_says_nothing_about_an_end_from_outside(code: int) -> None:
    assert last_words({"exitCode": code, "message": CORE}) == ""

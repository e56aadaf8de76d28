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
        ("Killed\n\n", "Killed"),
        ("", ""),
        (None, ""),
    ],
    ids=[
        *("an argument", "a folder", "a config", "a cause above", "a cause that is cut off"),
        *("no error", "nothing", "none"),
    ],
)
def test_the_line_that_says_why_is_found(log: str | None, said: str) -> None:
    assert last_words(log) == said
    assert len(said) <= 120

"""What the suites of tests are run with."""

from dev.suite import variables


def test_bytecode_is_written_whatever_the_shell_says() -> None:
    found = variables({"PYTHONDONTWRITEBYTECODE": "1", "HOME": "/home/a"}, "/usr/bin")

    assert found == {
        "HOME": "/home/a",
        "PATH": "/usr/bin",
        "PYTHONPATH": "operator:sidecar:client:plugin:.",
    }

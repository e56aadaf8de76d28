"""The operator's server of metrics and probes, over sockets."""

import socket
import struct
import time
import urllib.request

import pytest

from rlfleet_operator import metrics

_RESET = struct.pack("ii", 1, 0)
"""Closes a connection by a reset, as a kubelet's that has waited too long."""


def test_a_probe_that_gave_up_leaves_no_line_in_the_log(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    port = metrics.serve(0, metrics.Health())
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port)) as probe:
            probe.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    # It still answers, and has had the time to fail for those before.
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=30) as reply:
        assert reply.status == 200
    time.sleep(0.2)

    assert capfd.readouterr().err == ""
    assert caplog.records == []


def test_a_defect_of_the_server_is_logged(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails() -> bytes:
        raise LookupError("a defect")

    monkeypatch.setattr(metrics, "generate_latest", fails)
    port = metrics.serve(0, metrics.Health())
    with pytest.raises(OSError, match="closed connection"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30)

    (record,) = caplog.records
    assert "LookupError" in str(record.exc_info)
    assert capfd.readouterr().err == ""

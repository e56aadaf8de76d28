"""Applies the sidecar's commands to the gate."""

from rlfleet_contract.engine.gate import GateCommand
from rlfleet_engine.gate.deadline import OnExpiry
from rlfleet_engine.gate.gate import Gate

_WAYS = {"open": OnExpiry.OPEN, "refuse": OnExpiry.REFUSE}


def apply(gate: Gate, command: GateCommand) -> None:
    """Apply a command; the caller must hold the gate's lock."""
    match command.action:
        case "drain":
            gate.drain()
        case "era":
            gate.begin_era()
        case "admit":
            gate.admit()
        case "keep":
            gate.deadline.renew(command.ttl_s, _way(command))
        case _:
            _move(gate, command)
            _set_deadline(gate, command)


def _move(gate: Gate, command: GateCommand) -> None:
    version = command.version
    if command.action == "try":
        gate.begin_trial(version or gate.holding.version.decode())
    elif version is not None:
        gate.hold(version)
    if command.action in {"open", "pass", "fail"}:
        gate.end_trial(is_proved=command.action != "fail")
    if command.action == "open":
        gate.open()
    elif command.action == "refuse":
        gate.refuse()
    elif command.action != "pass" or not gate.is_admitting:
        gate.close()


def _set_deadline(gate: Gate, command: GateCommand) -> None:
    """Set the deadline or end it; the end of a trial keeps it."""
    if command.action in {"pass", "fail"}:
        return
    ttl_s, way = command.ttl_s, _way(command) or OnExpiry.REFUSE
    if command.action == "try":
        ttl_s, way = gate.deadline.rest_s if ttl_s is None else ttl_s, OnExpiry.REFUSE
    if ttl_s is None or command.action not in {"close", "try"}:
        gate.deadline.end()
    else:
        gate.deadline.set(ttl_s, way)


def _way(command: GateCommand) -> OnExpiry | None:
    return None if command.fallback is None else _WAYS[command.fallback]

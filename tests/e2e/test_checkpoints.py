"""Checkpoints on real vLLM: bad ones, all classes under load, are named and pause no worker."""

from typing import Any

import pytest

from tests.e2e.scenario import Fleet, Trainer, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]

HELP = """
import hashlib, json, struct
def split():
    data = f.read_bytes()
    n = struct.unpack('<Q', data[:8])[0]
    return json.loads(data[8:8 + n]), data[8 + n:]
def write(header, data):
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    f.write_bytes(struct.pack('<Q', len(text)) + text + data)
def header(change):
    found, data = split()
    change(found, next(n for n in found if n.endswith('norm.weight')))
    write(found, data)
def value(bits):
    found, data = split()
    norm = next(n for n in found if n.endswith('norm.weight'))
    data = bytearray(data)
    at = found[norm]['data_offsets'][0]
    data[at:at + len(bits)] = bits
    write(found, bytes(data))
def manifest(change=lambda files: None):
    files = {p.name: {'size': p.stat().st_size,
                      'sha256': hashlib.sha256(p.read_bytes()).hexdigest()}
             for p in d.glob('*.safetensors')}
    change(files)
    (d / 'rlfleet-manifest.json').write_text(json.dumps({'files': files}))
def index(change=lambda names: None):
    names = {name: f.name for name in split()[0] if name != '__metadata__'}
    change(names)
    (d / 'model.safetensors.index.json').write_text(json.dumps({'weight_map': names}))
"""
CLASSES = {
    "no marker": ("(d / 'STABLE').unlink()", "CheckpointIncomplete"),
    "begun again": (
        (
            "(d / 'STABLE').rename(d / '.finished'); (d / '.sender_ready').touch();"
            " os.utime(d / '.finished', (1, 1))"
        ),
        "CheckpointIncomplete",
    ),
    "no directory": ("shutil.rmtree(d)", "VersionNotFound"),
    "no weights": ("f.unlink()", "CheckpointInvalid"),
    "cut by half": ("os.truncate(f, f.stat().st_size // 2)", "CheckpointInvalid"),
    "cut by little": ("os.truncate(f, f.stat().st_size - 4096)", "CheckpointInvalid"),
    "empty": ("os.truncate(f, 0)", "CheckpointInvalid"),
    "zeroed header": ("f.write_bytes(bytes(4096) + f.read_bytes()[4096:])", "CheckpointInvalid"),
    "header that is no JSON": (
        "f.write_bytes(struct.pack('<Q', 9) + f.read_bytes()[8:])",
        "CheckpointInvalid",
    ),
    "missing tensor": ("header(lambda h, n: h.pop(n))", "CheckpointInvalid"),
    "renamed tensor": ("header(lambda h, n: h.update(other=h.pop(n)))", "CheckpointInvalid"),
    "another shape": (
        "header(lambda h, n: h[n].update(shape=[1, *h[n]['shape']]))",
        "CheckpointInvalid",
    ),
    "another dtype": (
        (
            "header(lambda h, n: h[n].update("
            "dtype={'BF16': 'I16', 'F16': 'I16', 'F32': 'I32'}[h[n]['dtype']]))"
        ),
        "CheckpointInvalid",
    ),
    "a NaN": (
        (
            "norm = next(n for n in split()[0] if n.endswith('norm.weight'))\n"
            "value(b'\\xc0\\x7f' if split()[0][norm]['dtype'] == 'BF16' else b'\\0\\0\\xc0\\x7f')"
        ),
        "CheckpointInvalid",
    ),
    "an index without its shard": (
        "index(lambda names: names.update(x='model-9.safetensors'))",
        "CheckpointInvalid",
    ),
    "an index that forgets": (
        "index(lambda names: names.pop(sorted(names)[0]))",
        "CheckpointInvalid",
    ),
    "a pickle": ("(d / 'pytorch_model.bin').write_bytes(b'x')", "CheckpointInvalid"),
    "code": ("(d / 'modeling.py').write_text('')", "CheckpointInvalid"),
    "code of its own": (
        "(d / 'config.json').write_text(json.dumps({'auto_map': {'AutoModel': 'x.Y'}}))",
        "CheckpointInvalid",
    ),
    "another architecture": (
        "(d / 'config.json').write_text(json.dumps({'hidden_size': 1}))",
        "CheckpointInvalid",
    ),
    "bytes other than the manifest's": (
        (
            "manifest()\nfound, data = split()\n"
            "write(found, data[:-2] + bytes(b ^ 1 for b in data[-2:]))"
        ),
        "DigestMismatch",
    ),
    "a manifest that forgets": ("manifest(lambda files: files.clear())", "DigestMismatch"),
    "a link out": ("f.unlink(); f.symlink_to('/etc/passwd')", "PathRefused"),
    "a linked directory": (
        "r = d.parent / 'real'; shutil.rmtree(r, True); d.rename(r); d.symlink_to(r)",
        "PathRefused",
    ),
    "unreadable": ("os.chmod(f, 0)", "CheckpointUnreadable"),
}


WORDS = {
    "no marker": "STABLE",
    "no directory": "bad-2",
    "cut by half": "model.safetensors",
    "a pickle": ".bin",
    "a link out": "model.safetensors",
    "unreadable": "chmod",
}
"""What a person needs to read with the reason."""


def test_every_class_is_refused_with_its_reason_and_pauses_no_worker(
    fleet: Fleet, trainer: Trainer
) -> None:
    before, answers, pods = fleet.status(), fleet.answers(), fleet.identities()
    versions = {f"bad-{place}": name for place, name in enumerate(CLASSES)}
    for version, name in versions.items():
        trainer.write(version, "step-1", HELP + CLASSES[name][0])
    seen = {}

    with fleet.under_load() as tallies:
        for version, name in versions.items():
            fleet.declare(version)
            seen[name] = _refused(fleet, version)["message"]
        stalled = fleet.wait_stalled()
    after = fleet.status()

    told = {name: said.split(": ")[1] for name, said in seen.items()}
    assert told == {name: code for name, (_, code) in CLASSES.items()}
    assert {name: word for name, word in WORDS.items() if word not in seen[name]} == {}
    assert stalled["reason"] == told[name]
    assert tallies[0].lost == 0, tallies
    assert (after["serving"], after["readyReplicas"]) == ("step-0", 2)
    assert [w["windowMs"] for w in after["workers"]] == [w["windowMs"] for w in before["workers"]]
    assert fleet.identities() == pods
    assert fleet.answers() == answers
    fleet.wait_for_events(*{code for _, code in CLASSES.values()})


def test_a_checkpoint_of_transformers_trainer_is_served_as_it_is(
    fleet: Fleet, trainer: Trainer
) -> None:
    files = ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin")
    trainer.write("checkpoint-500", "step-1", f"[(d / n).write_bytes(b'x') for n in {files}]")
    pods = fleet.identities()

    fleet.declare("checkpoint-500")
    status = fleet.wait_synced()

    assert status["serving"] == "checkpoint-500"
    assert fleet.identities() == pods


def _refused(fleet: Fleet, version: str) -> dict[str, Any]:
    """Wait until the rollout to a version is refused; return it as it was then."""
    refused: list[dict[str, Any]] = []

    def is_refused() -> bool:
        rollout = fleet.status()["rollout"]
        if (rollout["to"], rollout["phase"]) == (version, "Refused"):
            refused.append(rollout)
        return bool(refused)

    until(is_refused, 120, f"{version} is refused")
    return refused[0]

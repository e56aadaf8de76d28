"""What rlfleet uses of vLLM is in one table; an older release gets no flag that it lacks."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.releases.release_files import LACKS, MISSING, ReleaseFiles
from rlfleet_engine.vllm.serve import arguments_for, mixture, objection
from rlfleet_engine.vllm.uses import ROUTE, USES

SIDECAR = Path(__file__).resolve().parents[4] / "sidecar"
PACKAGE = SIDECAR / "rlfleet_engine" / "vllm"
IN_TABLE = {(use.place, use.name) for uses in USES.values() for use in uses}


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Each name of vLLM's that a file imports, with its module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "vllm":
            yield from ((str(node.module), alias.name) for alias in node.names)


def test_every_name_that_is_imported_from_vllm_stands_in_the_table() -> None:
    used = {name for path in PACKAGE.rglob("*.py") for name in imports(path)}

    # A module that is imported whole: its names are in the table.
    places = {place for place, _ in IN_TABLE}
    assert {(m, n) for m, n in used - IN_TABLE if f"{m}.{n}" not in places} == set()
    assert len(used) > 10


def test_nothing_outside_the_package_imports_vllm() -> None:
    files = [path for path in SIDECAR.rglob("*.py") if PACKAGE not in path.parents]

    assert {str(path) for path in files if list(imports(path))} == set()


def test_every_route_that_the_sidecar_calls_stands_in_the_table() -> None:
    text = (SIDECAR / "rlfleet_sidecar" / "vllm_client.py").read_text()
    called = {" ".join(found) for found in re.findall(r'"(GET|POST)",\s*"(/[^"]+)"', text)}
    called |= {f"POST {path}" for path in re.findall(r'_retried\(\s*"(/[^"]+)"', text)}

    assert called - {name for place, name in IN_TABLE if place == ROUTE} == set()
    assert len(called) > 8


@pytest.mark.parametrize(
    ("release", "flags"),
    [
        ("0.29.0", []),
        ("0.29.3+cpu", []),
        ("0.30.0", ["--enable-scale-out"]),
        ("0.32.0", ["--enable-scale-out"]),
        ("1.0", ["--enable-scale-out"]),
    ],
)
def test_a_flag_that_a_release_does_without_is_left_out(release: str, flags: list[str]) -> None:
    assert arguments_for(release, ["--model=x", "--enable-scale-out"]) == ["--model=x", *flags]


NAMED = ["--enable-lora", "--lora-target-modules", "q_proj", "v_proj"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--enable-lora"],
        ["--enable_lora", "--max-loras=2"],
        [*NAMED, "lm_head"],
        ["--enable-lora", "--lora-target-modules=lm_head"],
    ],
)
def test_on_a_cpu_adapters_of_the_head_are_rejected(arguments: list[str]) -> None:
    assert "--lora-target-modules" in (objection(arguments, is_for_cpu=True) or "")
    assert objection(arguments, is_for_cpu=False) is None


@pytest.mark.parametrize(
    "arguments",
    [NAMED, ["--enable-lora", "--lora_target_modules", "q_proj"], ["--no-enable-lora"], []],
)
def test_on_a_cpu_adapters_of_other_modules_are_taken(arguments: list[str]) -> None:
    assert objection(arguments, is_for_cpu=True) is None


TWICE = ("model-1.safetensors", "consolidated.safetensors", "params.json")
PICTURES = '{"vision_config": {}}'


@pytest.mark.parametrize(
    ("names", "config", "flags", "expected"),
    [
        (TWICE, PICTURES, [], "rejected"),
        (TWICE, "{}", [], "taken"),
        (TWICE, PICTURES, ["--config-format=mistral"], "taken"),
        (TWICE, PICTURES, ["--config_format", "hf"], "taken"),
        (TWICE[:1], PICTURES, [], "taken"),
        (TWICE[1:], PICTURES, [], "taken"),
    ],
)
def test_a_model_of_pictures_in_two_forms_is_rejected(
    names: tuple[str, ...], config: str, flags: list[str], expected: str, tmp_path: Path
) -> None:
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / "config.json").write_text(config)

    why = mixture([f"--model={tmp_path}", *flags]) or ""
    assert ("remove consolidated*.safetensors" in why) is (expected == "rejected")


def test_a_model_of_sound_in_two_forms_must_be_mistral_s(tmp_path: Path) -> None:
    for name in TWICE:
        (tmp_path / name).touch()
    (tmp_path / "config.json").write_text('{"audio_config": {}}')

    why = mixture([f"--model={tmp_path}"]) or ""
    assert "remove model*.safetensors" in why


def test_a_model_by_its_name_is_not_looked_at() -> None:
    assert mixture(["--model=org/model", "--port=1"]) is None
    assert mixture([]) is None


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A release in which some of what is used is there."""
    place = tmp_path / "vllm" / "entrypoints" / "rl" / "api_router.py"
    place.parent.mkdir(parents=True)
    place.write_text(
        '@router.post("/pause")\nasync def pause(raw_request, mode="abort"): ...\n'
        '@router.post(\n    "/collective_rpc",\n)\nasync def rpc(raw_request):\n'
        "    body = await raw_request.json()\n"
        '    method, args = body.get("method"), body.get("args", [])\n'
        '    kwargs, timeout = body.get("kwargs"), body.get("timeout")\n'
        'async def abort(raw_request):\n    (await raw_request.json()).get("request_ids")\n'
        'router.add_api_route("/abort_requests", abort, methods=["POST"])\n'
        "class Base(Model):\n    cache_salt: str\n"
        "class GenerateRequest(Base):\n    token_ids: list\n    sampling_params: dict\n"
        '@router.post("/inference/v1/generate")\nasync def generate(r: GenerateRequest): ...\n'
    )
    layers = tmp_path / "vllm" / "lora" / "layers"
    layers.mkdir(parents=True)
    (layers / "__init__.py").write_text("from .base import BaseLayerWithLoRA\n")
    (layers / "base.py").write_text("class BaseLayerWithLoRA: ...\n")
    return tmp_path


def test_what_a_release_lacks_is_reported_by_name(files: Path) -> None:
    told = ReleaseFiles(files).uses()

    assert told["POST /pause"] == "lacks clear_cache"
    assert told["POST /resume"] == MISSING
    for there in (
        "POST /collective_rpc",
        "POST /abort_requests",
        "POST /inference/v1/generate",
        "vllm.lora.layers.BaseLayerWithLoRA",
    ):
        assert not told[there].startswith((MISSING, LACKS)), there

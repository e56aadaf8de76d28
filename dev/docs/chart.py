"""The chart's README and the descriptions in its schema, from the comments in values.yaml.

Pure but for the reading of these files. The comment above a key of values.yaml is its only
description; a key of the schema without one is an error.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

CHART = Path(__file__).resolve().parents[2] / "charts" / "rlfleet"
Schema = dict[str, Any]
_KEY = re.compile(r"( *)(\w+):")
_COMMENT = re.compile(r" *# ?(.*)")
_TEXT = {"type": "string"}
_HEAD = """\
# rlfleet: the chart

<!-- Generated from values.yaml and values.schema.json by `make generate`; do not edit. -->

{description}.

    helm upgrade --install rlfleet charts/rlfleet --namespace rlfleet-system --create-namespace \\
      --set image.repository=REGISTRY/operator --set image.tag={version} \\
      --set worker.image=REGISTRY/worker:{version}

Kubernetes {kubernetes}, Helm 3.14 or newer.
No registry has the images; [install.md](../../docs/how-to/install.md) shows how to build them.
Helm checks values against `values.schema.json` and rejects a value that it does not know.

To upgrade with the values of the installed release:

    helm upgrade rlfleet charts/rlfleet --namespace rlfleet-system --reset-then-reuse-values

## Values

"""


class Value(NamedTuple):
    """One key of values.yaml."""

    path: str
    schema: Schema
    default: Any
    """None of a key whose keys have rows of their own."""


def readme() -> str:
    """Return README.md of the chart."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    head = _HEAD.format(
        description=chart["description"],
        version=chart["appVersion"],
        kubernetes=chart["kubeVersion"].removeprefix(">=").removesuffix(".0-0") + " or newer",
    )
    words = comments((CHART / "values.yaml").read_text())
    return f"{head}{_table(values(), words)}"


def schema() -> str:
    """Return values.schema.json with the descriptions of now."""
    found: Schema = json.loads((CHART / "values.schema.json").read_text())
    words = comments((CHART / "values.yaml").read_text())
    return json.dumps(described(found, words), indent=2) + "\n"


def values() -> list[Value]:
    """Return each value of the schema with its default, parents before children."""
    found: Schema = json.loads((CHART / "values.schema.json").read_text())
    return list(_values("", found, yaml.safe_load((CHART / "values.yaml").read_text())))


def comments(text: str) -> dict[str, str]:
    """Return the comment directly above each key of a YAML text, by the key's dotted path."""
    found: dict[str, str] = {}
    above: list[str] = []
    at: list[tuple[int, str]] = []
    for line in text.splitlines():
        if comment := _COMMENT.fullmatch(line):
            above.append(comment[1])
            continue
        if key := _KEY.match(line):
            at = [one for one in at if one[0] < len(key[1])] + [(len(key[1]), key[2])]
            if above:
                found[".".join(name for _, name in at)] = " ".join(above)
        above = []
    return found


def described(schema: Schema, words: Mapping[str, str], path: str = "") -> Schema:
    """Return a schema whose properties have their descriptions, first of all."""
    if "properties" not in schema:
        return schema
    properties = {}
    for name, inner in schema["properties"].items():
        where = f"{path}.{name}".strip(".")
        rest = {key: value for key, value in inner.items() if key != "description"}
        properties[name] = {"description": words[where], **described(rest, words, where)}
    return {**schema, "properties": properties}


def _values(path: str, schema: Schema, default: Mapping[str, Any]) -> Iterator[Value]:
    for name, inner in schema["properties"].items():
        where = f"{path}.{name}".strip(".")
        if "properties" in inner:
            yield Value(where, inner, None)
            yield from _values(where, inner, default[name])
        else:
            yield Value(where, inner, default[name])


def _table(rows: list[Value], words: Mapping[str, str]) -> str:
    lines = ["| value | type | default | meaning |", "|---|---|---|---|"]
    for row in rows:
        cells = [f"`{row.path}`", _type(row.schema), _default(row), words[row.path]]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _default(row: Value) -> str:
    if row.default is None:
        return ""
    text = json.dumps(row.default, ensure_ascii=False)
    return "empty" if text in ('""', "[]", "{}") else f"`{text}`"


def _type(schema: Schema) -> str:
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    kind = str(schema["type"])
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    return "map of string" if schema.get("additionalProperties") == _TEXT else kind + _range(schema)


def _range(schema: Schema) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is None:
        return ""
    return f", {least} to {most}" if most is not None else f", {least} or more"

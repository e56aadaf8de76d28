"""Write the generated files, or with --check say which of them are out of date.

One list, so that a file cannot be generated in one place and forgotten in the other.
"""

import argparse
import json
import sys
from pathlib import Path

import yaml

from dev.docs import (
    argocd,
    chart,
    compatibility_page,
    crd,
    diagrams,
    http_page,
    kustomize,
    models_page,
    reasons,
    reference,
    sizes_page,
    tree,
)
from dev.release import version
from rlfleet_kubectl.core.doctor import installation

ROOT = Path(__file__).resolve().parent.parent


def _chart_template() -> str:
    """Return the CRD as a chart template: kept on uninstall, upgraded with the chart."""
    text = crd.as_yaml()
    # Helm reads {{ }}: the schema's own braces are single, so only the frame is added.
    marker = "metadata:\n  name:"
    annotated = text.replace(
        marker,
        "metadata:\n  annotations:\n    helm.sh/resource-policy: keep\n  name:",
        1,
    )
    return "{{- if .Values.crds.enabled }}\n" + annotated + "{{- end }}\n"


def _fields() -> str:
    """Return the fields of the CRD, by which the plugin sees whether a cluster has this one."""
    found = installation.fields_of(yaml.safe_load(crd.as_yaml()))
    return json.dumps(sorted(found), indent=1) + "\n"


def files() -> dict[Path, str]:
    """Return each generated file with what must stand in it."""
    architecture = ROOT / "docs" / "architecture.md"
    return version.stamped() | {
        ROOT / "crds" / "rlinferencefleets.rlfleet.dev.yaml": crd.as_yaml(),
        ROOT / "charts" / "rlfleet" / "templates" / "crd.yaml": _chart_template(),
        chart.CHART / "values.schema.json": chart.schema(),
        chart.CHART / "README.md": chart.readme(),
        ROOT / "docs" / "reference" / "fleet.md": reference.page(),
        ROOT / "docs" / "reference" / "http.md": http_page.page(),
        ROOT / "docs" / "reference" / "models.md": models_page.page(),
        ROOT / "docs" / "reference" / "compatibility.md": compatibility_page.page(),
        ROOT / "plugin" / "rlfleet_view" / "reasons.json": reasons.as_json(),
        ROOT / "docs" / "reference" / "sizes.md": sizes_page.page(),
        ROOT / "deploy" / "argocd" / "argocd-cm.yaml": argocd.as_yaml(),
        ROOT / "plugin" / "rlfleet_kubectl" / "definition.json": _fields(),
        architecture: tree.drawn_into(diagrams.drawn_into(architecture.read_text())),
    }


def rendered() -> dict[Path, str]:
    """Return the files that Helm renders, which takes a build of Helm once."""
    return {ROOT / "deploy" / "kustomize" / "base" / "rlfleet.yaml": kustomize.base()}


def main() -> int:
    """Write or check; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing, exit 1 on a difference"
    )
    check = parser.parse_args().check
    # Helm renders the chart's definition, which is one of the files.
    stale = _stale(files(), check=check) + _stale(rendered(), check=check)
    if check and stale:
        print("run `make generate` and commit the result")
        return 1
    return 0


def _stale(texts: dict[Path, str], *, check: bool) -> int:
    """Write or name the files that are out of date; return how many."""
    stale = [p for p, text in texts.items() if not p.exists() or p.read_text() != text]
    for path in stale:
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[path])
        print(f"{'out of date' if check else 'wrote'}: {path.relative_to(ROOT)}")
    return len(stale)


if __name__ == "__main__":
    sys.exit(main())

"""Parses configs with transformers, in a short-lived process.

transformers is in the worker's image, because vLLM needs it. Its import without torch costs
1.5 s of CPU and 80 MiB, which the sidecar must not hold for its whole life. Only transformers'
own classes are used: no code of a checkpoint runs, and nothing is downloaded. It must stay
true that a config which cannot be parsed in time counts as not parsed.
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import gettempdir
from typing import Any

_LIMIT_S = 60.0
_HEAVY = ("torch", "torchvision", "tensorflow", "jax", "flax", "PIL", "pandas", "scipy", "sklearn")
"""Optional imports of transformers that configs do not need."""
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "PYTHONSAFEPATH": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
"""The whole environment, without the sidecar's credentials."""
_log = logging.getLogger(__name__)

Configs = Sequence[Mapping[str, object]]


def parsed(configs: Configs, left_s: float) -> list[dict[str, object]] | None:
    """Return the configs as transformers parses them; None if it cannot. Blocking."""
    if find_spec("transformers") is None:
        return None
    try:
        made = _run(configs, min(_LIMIT_S, left_s))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = getattr(error, "stderr", None) or str(error)
        _log.warning("Failed to parse config.json by transformers", extra={"error": why[-300:]})
        return None
    return made if len(made) == len(configs) else None


def _run(configs: Configs, limit_s: float) -> list[dict[str, object]]:
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "HOME": gettempdir()}
    done = subprocess.run(
        (sys.executable, "-m", "rlfleet_sidecar.checkpoints.config_parser"),
        input=json.dumps(list(configs)),
        capture_output=True,
        text=True,
        check=True,
        timeout=max(0.0, limit_s),
        env=paths | _ENVIRONMENT,
    )
    made = json.loads(done.stdout)
    if not isinstance(made, list) or not all(isinstance(one, dict) for one in made):
        raise ValueError(f"got {done.stdout[:100]!r}, expected a list of configs")
    return made


def _parse(config: dict[str, Any]) -> dict[str, Any]:
    from transformers import CONFIG_MAPPING

    stated = {key: value for key, value in config.items() if key != "auto_map"}
    kind = stated["model_type"]
    # transformers 5 renamed some, such as lfm2-vl.
    kind = kind if kind in CONFIG_MAPPING else kind.replace("-", "_")
    made: dict[str, Any] = CONFIG_MAPPING[kind].from_dict(stated).to_dict()
    return made


def _main() -> None:
    # When memory is short, the kernel kills this process instead of the sidecar.
    Path("/proc/self/oom_score_adj").write_text("1000")
    for name in _HEAVY:
        sys.modules[name] = None  # type: ignore[assignment]
    made = [_parse(config) for config in json.load(sys.stdin)]
    json.dump(made, sys.stdout, default=str)


if __name__ == "__main__":
    _main()

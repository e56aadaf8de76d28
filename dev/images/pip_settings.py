"""How pip inside an image build reaches its index: as pip on this machine does.

A build sees neither the machine's environment nor its certificates. Both are
mounted for the time of the build and are not part of the image.
"""

import configparser
from pathlib import Path

from dev import cache, environment

FILES = ("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")
BUNDLE = "/etc/pip-ca.crt"


def mounts() -> list[str]:
    """Return buildah's flags that give a build this machine's pip settings."""
    settings = _settings()
    flags = []
    known = (environment.variable(name) for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"))
    bundle = next(filter(None, (settings.get("cert", ""), *known)), "")
    if bundle and Path(bundle).is_file():
        settings["cert"] = BUNDLE
        flags += ["--volume", f"{Path(bundle).resolve()}:{BUNDLE}:ro"]
    for place in settings.get("find-links", "").split():
        if Path(place).is_dir():
            flags += ["--volume", f"{place}:{place}:ro"]
    config = configparser.ConfigParser(interpolation=None)
    config["global"] = settings
    path = cache.folder("images") / "pip.conf"
    with path.open("w") as file:
        config.write(file)
    return [*flags, "--volume", f"{path}:/etc/pip.conf:ro"]


def _settings() -> dict[str, str]:
    """Merge pip's files and its environment, later ones win, as pip does."""
    config = configparser.ConfigParser(interpolation=None)
    files = (*FILES, environment.variable("PIP_CONFIG_FILE"))
    config.read([Path(name).expanduser() for name in files if name])
    settings = dict(config["global"]) if config.has_section("global") else {}
    for name, value in environment.everything().items():
        if name.startswith("PIP_") and name != "PIP_CONFIG_FILE":
            settings[name.removeprefix("PIP_").lower().replace("_", "-")] = value
    return settings

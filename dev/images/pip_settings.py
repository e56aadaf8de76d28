"""How pip inside an image build reaches its index: as pip on this machine does.

A build sees neither the machine's environment nor its certificates. Both are
mounted for the time of the build, in one folder: where something was mounted, the
image keeps an empty file or folder, and that must not depend on the machine.
"""

import configparser
import shutil
from pathlib import Path

from dev import cache, environment

FILES = ("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")
MOUNTED = Path("/etc/xdg/pip")
"""Where pip looks for its settings, as in /etc."""
CONFIG, BUNDLE = "pip.conf", "ca.crt"


def mounts() -> list[str]:
    """Return buildah's flags that give a build this machine's pip settings."""
    settings = _settings()
    folder = cache.folder("images", "pip")
    shutil.rmtree(folder)
    folder.mkdir()
    known = (environment.variable(name) for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"))
    bundle = next(filter(None, (settings.get("cert", ""), *known)), "")
    if bundle and Path(bundle).is_file():
        shutil.copyfile(bundle, folder / BUNDLE)
        settings["cert"] = str(MOUNTED / BUNDLE)
    flags = ["--volume", f"{folder}:{MOUNTED}:ro"]
    links = settings.get("find-links", "").split()
    for number, place in enumerate(links):
        if Path(place).is_dir():
            name = f"links-{number}"
            (folder / name).mkdir()
            links[number] = str(MOUNTED / name)
            flags += ["--volume", f"{Path(place).resolve()}:{links[number]}:ro"]
    if links:
        settings["find-links"] = " ".join(links)
    _write(settings, folder / CONFIG)
    return flags


def _write(settings: dict[str, str], path: Path) -> None:
    config = configparser.ConfigParser(interpolation=None)
    config["global"] = settings
    with path.open("w") as file:
        config.write(file)


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

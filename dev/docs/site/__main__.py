"""Write the site to build/docs: python -m dev.docs.site [FOLDER]. A warning is an error."""

import shutil
import sys
from pathlib import Path

from sphinx.cmd import build

from dev.docs.site import pages

SITE = pages.ROOT / "build" / "docs"


def make(site: Path) -> int:
    """Make the site; return the exit status of Sphinx."""
    staged, doctrees = (site.with_name(f"{site.name}-{part}") for part in ("pages", "doctrees"))
    for folder in (site, staged, doctrees):
        shutil.rmtree(folder, ignore_errors=True)
    pages.stage(staged)
    words = ["-q", "-W", "--keep-going", "-b", "html", "-c", str(Path(__file__).parent)]
    return build.main([*words, "-d", str(doctrees), str(staged), str(site)])


def main() -> int:
    """Make it, and say where it is."""
    site = Path(sys.argv[1]) if sys.argv[1:] else SITE
    status = make(site)
    print("the site has errors: mend what is named above" if status else f"open {site}/index.html")
    return status


if __name__ == "__main__":
    sys.exit(main())

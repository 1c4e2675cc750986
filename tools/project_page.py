"""Write the project's page on PyPI: the README with links that lead somewhere from there, and URLs.

pyproject.toml names this module as a provider of dynamic metadata. As a command, it prints the
address of the repository, which CITATION.cff has; the exit code is 1 while that is a placeholder:

    python tools/project_page.py
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ADDRESS = re.search(
    r'^repository-code: "(.+?)/?"$', (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE
)[1]
IS_PLACEHOLDER = ".invalid/" in ADDRESS  # RFC 2606: no such name exists
LINK = re.compile(r"(!?)(\[[^]]*\])\((?![a-z]+:|#)([^)]+)\)")


def dynamic_metadata(settings, project):
    """Return the readme and the URLs, with links to the files of this version."""
    tag = f"v{project['version']}"

    def absolute(link):
        picture, text, path = link.groups()
        return f"{picture}{text}({ADDRESS}/{'raw' if picture else 'blob'}/{tag}/{path})"

    readme = LINK.sub(absolute, (ROOT / "README.md").read_text("utf-8"))
    return {
        "readme": {"content-type": "text/markdown", "text": readme},
        "urls": {
            "Repository": ADDRESS,
            "Documentation": f"{ADDRESS}/blob/{tag}/docs/index.md",
            "Changelog": f"{ADDRESS}/blob/{tag}/CHANGELOG.md",
            "Issues": f"{ADDRESS}/issues",
        },
    }


if __name__ == "__main__":
    print(ADDRESS)
    if IS_PLACEHOLDER:
        sys.exit("the address is a placeholder: set repository-code in CITATION.cff")

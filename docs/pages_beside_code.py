"""Copies the pages beside the code, ``README.md`` of a package, to ``docs/packages``, for the site.

`sphinx-build` calls it (`conf.py`). In the repository, links lead to the pages beside the code; in the site, to their copies.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
FOLDER = DOCS / "packages"


def pages() -> dict[Path, str]:
    """Page beside the code -> name of its copy, such as ``executor-native.md``."""
    paths = sorted(path for package in ("executor", "fluid") for path in (ROOT / package).rglob("README.md"))
    return {path: "-".join(path.parent.relative_to(ROOT).parts) + ".md" for path in paths}


def linked(text: str, folder: Path) -> str:
    """Rewrite the links of a page in `folder` to pages that the site has elsewhere."""
    copies = pages()

    def link(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / match[1]))
        if target in copies:
            return f"](/{FOLDER.name}/{copies[target]}"
        if target.parent == ROOT:  # the site has a page that includes it
            return f"](/{target.name}"
        if target.is_relative_to(DOCS) and not folder.is_relative_to(DOCS):
            return f"](/{target.relative_to(DOCS).as_posix()}"
        return match[0]

    return re.sub(r"\]\(((?:\.\./)*[\w./-]+\.md)", link, text)


def write() -> None:
    """Copy all pages; leave those unchanged that are current, so that Sphinx need not read them again."""
    FOLDER.mkdir(exist_ok=True)
    texts = {name: linked(path.read_text(encoding="utf-8"), path.parent) for path, name in pages().items()}
    for path in FOLDER.iterdir():
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        path = FOLDER / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")

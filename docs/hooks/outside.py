"""Pages that lie outside docs/, and links to them."""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    root = Path(config.docs_dir).parent
    for name, page in PAGES.items():
        text = (root / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A page knows them as ../NAME.md, or ../../NAME.md from a folder."""
    link = re.compile(r"\]\(((?:\.\./)*)\.\./(CONTRIBUTING\.md|CHANGELOG\.md)")
    return link.sub(lambda found: f"]({found[1]}{PAGES[found[2]]}", markdown)

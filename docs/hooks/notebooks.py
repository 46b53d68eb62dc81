"""Notebooks as pages: text, code, and what was printed and drawn; the notebook itself is there to download."""

import base64
import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
FENCE = "````"  # longer than any that is inside


def fenced(text: str, language: str) -> str:
    return f"{FENCE}{language}\n{text.rstrip()}\n{FENCE}"


def output(out: dict[str, Any], picture: str) -> tuple[str, bytes | None]:
    """Markdown of one output, and its picture where it has one."""
    if out["output_type"] == "stream":
        return fenced(ANSI.sub("", "".join(out["text"])), "text"), None
    if out["output_type"] == "error":
        raise ValueError(f"a cell failed: {out['ename']}: {out['evalue']}")
    data = out["data"]
    if "image/png" in data:
        return f"![]({Path(picture).name})", base64.b64decode(data["image/png"])
    return fenced("".join(data["text/plain"]), "text"), None


def page(file: Path) -> tuple[str, dict[str, bytes]]:
    """The page of a notebook, and its pictures by name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(fenced(text, "bash" if text.startswith("%%bash") else "python"))
        for out in cell["outputs"]:
            name = f"notebooks/{file.stem}-{len(pictures) + 1}.png"
            markdown, picture = output(out, name)
            parts.append(markdown)
            if picture is not None:
                pictures[name] = picture
    title, *rest = parts
    return "\n\n".join([title, f'<a href="{file.name}" download>Download this notebook</a>', *rest]) + "\n", pictures


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A link to a notebook leads to its page; the one to download it, written as HTML, stays."""
    return re.sub(r"(\]\([\w./-]+)\.ipynb\)", r"\1.md)", markdown)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for file in sorted(Path(config.docs_dir, "notebooks").glob("*.ipynb")):
        text, pictures = page(file)
        files.append(File.generated(config, f"notebooks/{file.stem}.md", content=text))
        for name, picture in pictures.items():
            files.append(File.generated(config, name, content=picture))
    return files

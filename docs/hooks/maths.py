r"""Equations, \(...\) and \[...\] as arithmatex leaves them, become MathML in the build: no script, no font."""

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert

INLINE = re.compile(r'<span class="arithmatex">\\\((.+?)\\\)</span>', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.+?)\\\]\s*</div>', re.DOTALL)


def mathml(latex: str, display: str) -> str:
    return convert(unescape(latex).strip(), display=display)


def on_page_content(content: str, **_: Any) -> str:
    content = INLINE.sub(lambda found: mathml(found[1], "inline"), content)
    return BLOCK.sub(lambda found: f'<div class="equation">{mathml(found[1], "block")}</div>', content)

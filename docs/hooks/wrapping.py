"""Where lines may break: never inside an option or an interval, and in long names after a dot, slash or underscore.

A browser breaks after every hyphen, so `--split` would end a line with `--`; in narrow cells of tables it cuts names
anywhere. Blocks of code are left as they are.
"""

import re
from typing import Any

CODE = re.compile(r"<code>([^<\n]+)</code>")  # a block ends with a new line, or has tags inside
INTERVAL = re.compile(r"\((-?\d*\.\d+ to -?\d*\.\d+)\)")
LONG = 24  # letters; shorter words fit into any cell


def _word(word: str) -> str:
    if len(word) >= LONG:
        return re.sub(r"(::|[./]|_(?!_))(?=\w)", r"\1<wbr>", word)
    return f'<span class="whole">{word}</span>' if "-" in word else word


def on_page_content(content: str, **_: Any) -> str:
    content = CODE.sub(lambda found: f"<code>{' '.join(map(_word, found[1].split(' ')))}</code>", content)
    return INTERVAL.sub(r'<span class="whole">(\1)</span>', content)

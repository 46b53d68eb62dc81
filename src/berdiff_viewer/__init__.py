"""The viewer: a result as one page for the browser, in a file of its own (`page.py`) or from the server (`server/`).

It imports `berdiff`, and two places of `berdiff` import it, on use: `berdiff view` takes `server/run.py`, and
`--write viewer` takes `page.py`.
"""

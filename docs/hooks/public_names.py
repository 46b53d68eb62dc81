"""Every public name has a docstring and stands on a page of the Python API; a warning otherwise, which fails the build.

Public are `berdiff.__all__`, `berdiff.metrics.__all__`, what the pages tell people to import, and all names without an
underscore of the modules that the API pages show.
"""

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import griffe
from mkdocs.config.defaults import MkDocsConfig

DOCS = Path(__file__).parents[1]
log = logging.getLogger("mkdocs.hooks.public_names")


def shown() -> set[str]:
    """The modules of the API pages."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference/api").glob("*.md"))
    return set(re.findall(r"^::: ([\w.]+)", text, re.MULTILINE))


def imported() -> Iterator[tuple[str, str, str]]:
    """Page, module and name of each `from berdiff... import ...` in the code of a page."""
    for page in sorted([DOCS.parent / "README.md", *DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb")]):
        text = page.read_text(encoding="utf-8")
        for module, names in re.findall(r"from (berdiff[\w.]*) import (\w+(?:, \w+)*)", text):
            for name in names.split(","):
                yield page.name, module, name.strip()


def undocumented(module: griffe.Module) -> Iterator[str]:
    """Functions, classes and methods without a docstring, of their own or inherited."""
    if not module.docstring:
        yield module.path
    for one in public(module):
        if not one.docstring:
            yield one.path
        for method in public(one) if isinstance(one, griffe.Class) else ():
            of_bases = [base.members[method.name] for base in one.mro() if method.name in base.members]
            if not any(each.docstring for each in [method, *of_bases]):
                yield method.path


def public(of: griffe.Module | griffe.Class) -> Iterator[griffe.Class | griffe.Function | griffe.Attribute]:
    """Its own classes, functions and properties without an underscore."""
    for name, member in of.members.items():
        computed = isinstance(member, griffe.Attribute) and "property" in member.labels
        if not name.startswith("_") and (computed or isinstance(member, griffe.Class | griffe.Function)):
            yield member


def problems() -> list[str]:
    """A sentence for each public name that is not documented."""
    modules, package = shown(), griffe.load("berdiff", search_paths=[DOCS.parent / "src"])
    lacking = [path for module in sorted(modules) for path in undocumented(package[module.removeprefix("berdiff.")])]
    found = [f"{path}: expected a docstring, found none" for path in lacking]
    offered = [("__all__", of.path, name) for of in (package, package["metrics"]) for name in of.exports or ()]
    for page, module, name in [*offered, *imported()]:
        path = f"{module}.{name}"
        if path in ("berdiff.__version__", "berdiff.metrics") or module in modules or path in modules:
            continue
        if package[path.removeprefix("berdiff.")].canonical_path.rpartition(".")[0] not in modules:
            found.append(f"{path} ({page}): expected its module on a page of the Python API, found none")
    return found


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    for problem in problems():
        log.warning(problem)
    return config

"""Pages of results that the menu does not name come after those that it does: `make results` makes new ones."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    results = next(part["Results"] for part in config.nav or [] if "Results" in part)
    named = {path for entry in results for path in (entry.values() if isinstance(entry, dict) else [entry])}
    for page in sorted(Path(config.docs_dir, "results").glob("*.md")):
        if (path := f"results/{page.name}") not in named:
            results.append({title(page): path})
    return config


def title(page: Path) -> str:
    """Its heading, as far as the first colon."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("# ")).removeprefix("# ").split(":")[0]

"""The card of a model on a hub: our own README of it below what the hub reads."""

from pathlib import Path

from berdiff.data.input_spec import InputSpec
from berdiff.methods.config import MethodConfig

NOT_CLINICAL = "not for clinical use"
FOR_RESEARCH = f"For research; {NOT_CLINICAL}."
TAGS = ("berdiff", "medical", "image-segmentation", "uncertainty", "diffusion")


def model_card(folder: Path, name: str, config: MethodConfig, spec: InputSpec, license: str | None = None) -> str:
    """`folder`'s README.md, or one made of the configuration, with the hub's header and how to load it."""
    own = folder / "README.md"
    text = own.read_text(encoding="utf-8") if own.is_file() else _about(name, config, spec)
    if text.startswith("---\n"):
        return text  # it has been on a hub
    header = ["library_name: berdiff", "pipeline_tag: image-segmentation"]
    header += [f"license: {license}"] if license else []
    header += ["tags:", *(f"- {tag}" for tag in (*TAGS, config.method))]
    use = f'import berdiff\n\nmodel = berdiff.load("hf://{name}")\nresult = model.segment("scan.png", n=16)'
    return "\n".join(["---", *header, "---", text.rstrip(), "", "## Use", "", "```python", use, "```", ""])


def _about(name: str, config: MethodConfig, spec: InputSpec) -> str:
    lines = [
        f"# {name.split('/')[-1]}",
        "",
        f"A model of the method `{config.method}`, trained with berdiff. **{FOR_RESEARCH}**",
        "",
        f"- **Knows**: images of {spec.pixels}, channels {', '.join(spec.channels)}, scaled by "
        f"the rule `{spec.intensity.rule}` (`input_spec` in `config.json`).",
        f"- **Trained on**: {spec.trained_on}.",
        f"- **Marks**: {', '.join(spec.targets)}.",
        *([f"- **Data**: prepared from `{spec.source}`."] if spec.source else []),
        *(f"- **Note**: {note}." for note in spec.notes),
    ]
    return "\n".join(lines)

"""A model as a MONAI bundle: a folder that `monai.bundle` runs, wherever berdiff is installed.

configs/metadata.json    what it is, for which versions, and what goes in and comes out
configs/inference.json   the run: images of a folder in, the files of `berdiff segment` out
models/                  the model folder: config.json and model.safetensors (no pickle)
docs/README.md           the model's card, and how to run the bundle
LICENSE                  of the software
"""

import shutil
from importlib.metadata import files, version
from pathlib import Path
from typing import Any

from berdiff import __version__, schema
from berdiff.data.input_spec import InputSpec
from berdiff.errors import InputError
from berdiff.files import whole_folder, write_text
from berdiff.inference.model import Model
from berdiff.methods.card import FOR_RESEARCH
from berdiff.methods.config import MethodConfig

SCHEMA = "https://github.com/Project-MONAI/MONAI-extra-test-data/releases/download/0.8.1/meta_schema_20240725.json"
_HERE = "berdiff.output.bundle"
INFERENCE: dict[str, Any] = {
    "bundle_root": ".",
    "dataset_dir": "$@bundle_root + '/input'",
    "output_dir": "$@bundle_root + '/eval'",
    "device": "auto",
    "samples": 16,
    "seed": 0,
    "center": None,
    "box": None,
    "slices": None,
    "pad": False,
    "write": None,
    "model": {"_target_": "berdiff.load", "path_or_name": "$@bundle_root + '/models'", "device": "@device"},
    "settings": {
        "_target_": f"{_HERE}.settings",
        **{name: f"@{name}" for name in ("samples", "seed", "center", "box", "slices", "pad")},
    },
    "network_def": {"_target_": f"{_HERE}.Network", "model": "@model", "samples": "@samples", "seed": "@seed"},
    "dataset": {"_target_": f"{_HERE}.Inputs", "model": "@model", "path": "@dataset_dir", "settings": "@settings"},
    "inferer": {"_target_": f"{_HERE}.Samples", "model": "@model", "settings": "@settings"},
    "evaluator": {
        "_target_": f"{_HERE}.Segmentation",
        "dataset": "@dataset",
        "inferer": "@inferer",
        "output_dir": "@output_dir",
        "write": "@write",
    },
    "run": ["$@evaluator.run()"],
}
USE = """
## Run it as a MONAI bundle

With `pip install berdiff fire` and the images in `scans`:

```
python -m monai.bundle run --config_file configs/inference.json --bundle_root . --dataset_dir scans --output_dir results
```

`--samples`, `--seed`, `--center "[250, 310]"`, `--box`, `--slices`, `--write "['mask', 'json']"` mean what they
mean to `berdiff segment`, which writes the same files: `berdiff segment models scans --out results`.
"""


def export_bundle(model: Model, folder: Path, out: Path) -> list[str]:
    """Write the bundle of the model in `folder` to `out`, which must be new; the files in it."""
    if out.exists():
        raise InputError(f"--out: {out} exists already; expected a new folder", "conflict")
    config, spec = model.segmenter.config, model.input_spec
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8") if card.is_file() else f"# {model.name}\n\n{FOR_RESEARCH}\n"
    with whole_folder(out) as part:
        for name in ("config.json", "model.safetensors"):
            (part / "models").mkdir(exist_ok=True)
            shutil.copyfile(folder / name, part / "models" / name)
        write_text(part / "configs" / "metadata.json", schema.dump(metadata(model.name, config, spec, model.size)))
        write_text(part / "configs" / "inference.json", schema.dump(INFERENCE))
        write_text(part / "docs" / "README.md", text.rstrip() + "\n" + USE)
        write_text(part / "LICENSE", _licence())
    return sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())


def metadata(name: str, config: MethodConfig, spec: InputSpec, size: tuple[int, ...]) -> dict[str, Any]:
    """By MONAI's schema."""
    plane = {"type": "image", "spatial_shape": list(size), "dtype": "float32", "value_range": [0, 1]}
    plane |= {"is_patch_data": spec.patches}
    scaled = f"scaled to [0, 1] by the rule {spec.intensity.rule}"
    image = {**plane, "format": "magnitude", "modality": ", ".join(spec.channels), "num_channels": len(spec.channels)}
    masks = {**plane, "format": "probability", "num_channels": len(spec.targets)}
    return {
        "schema": SCHEMA,
        "version": "0.1.0",
        "changelog": {"0.1.0": f"exported by berdiff {__version__}"},
        "monai_version": version("monai"),
        "pytorch_version": version("torch").split("+")[0],
        "numpy_version": version("numpy"),
        "required_packages_version": {"berdiff": __version__},
        "name": name,
        "task": f"segmentation of {', '.join(spec.targets)}: plausible masks and their frequencies",
        "description": f"A model of the method {config.method}. {FOR_RESEARCH}",
        "authors": "see docs/README.md",
        "copyright": "see docs/README.md",
        "data_source": spec.source,
        "image_classes": f"{', '.join(spec.channels)}, {scaled}",
        "pred_classes": f"{', '.join(spec.targets)}: the share of the samples that mark a pixel",
        "intended_use": FOR_RESEARCH,
        "network_data_format": {
            "inputs": {"image": {**image, "channel_def": _named(spec.channels)}},
            "outputs": {"pred": {**masks, "channel_def": _named(spec.targets)}},
        },
    }


def _named(names: tuple[str, ...]) -> dict[str, str]:
    return {str(i): name for i, name in enumerate(names)}


def _licence() -> str:
    """Of the software, as it was installed or as it lies in the source tree."""
    installed = (file for file in files("berdiff") or [] if file.name == "LICENSE" and "dist-info" in str(file.parent))
    for path in (*(Path(str(file.locate())) for file in installed), Path(__file__).parents[3] / "LICENSE"):
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return "Apache License, Version 2.0: https://www.apache.org/licenses/LICENSE-2.0\n"

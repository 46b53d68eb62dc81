"""Small BraTS folders for tests, in each of the three layouts."""

import nibabel
import numpy as np

from berdiff.data.sources.brats import Options, read

LPS = np.diag([-1.0, -1, 1, 1])
SHAPE = (6, 20, 24)  # (slice, row, column)
SMALL = {"bottom": 1, "top": 2, "size": (16, 16)}
PARTS = ("t1", "t1ce", "t2", "flair", "seg")


def scan(seed=0):
    """Four sequences and labels, upright; slice 4 and up have no tumour, sequences have ranges of their own."""
    rng = np.random.default_rng(seed)
    brain = np.zeros(SHAPE, bool)
    brain[:, 3:17, 4:20] = True
    made = {name: brain * rng.integers(100, 900 + 500 * i, SHAPE) for i, name in enumerate(PARTS[:4])}
    seg = np.zeros(SHAPE, np.uint8)
    seg[:4, 6:12, 8:16] = rng.choice([1, 2, 4], (4, 6, 8))
    return {**{name: volume.astype(np.int16) for name, volume in made.items()}, "seg": seg}


def save(path, stored, affine=LPS):
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(stored, affine), path)


def case_folder(root, name="BraTS2021_00001", seed=0, suffix=".nii.gz", skip=(), **replaced):
    for part, volume in {**scan(seed), **replaced}.items():
        if part not in skip:
            save(root / name / f"{name}_{part}{suffix}", volume.T)
    return root


def new_case_folder(root, name="BraTS-GLI-00006-000", seed=0, enhancing=3):
    """BraTS 2023's names, and its 3 for enhancing tumour."""
    parts = scan(seed)
    parts["seg"] = np.where(parts["seg"] == 4, enhancing, parts["seg"]).astype(np.uint8)
    for part, called in zip(PARTS, ("t1n", "t1c", "t2w", "t2f", "seg"), strict=True):
        save(root / name / f"{name}-{called}.nii.gz", parts[part].T)
    return root


def decathlon(root, name="BRATS_001", seed=0):
    parts = scan(seed)
    save(root / "imagesTr" / f"{name}.nii.gz", np.stack([parts[k].T for k in ("flair", "t1", "t1ce", "t2")], axis=-1))
    labels = np.zeros(SHAPE, np.uint8)
    for ours, theirs in ((2, 1), (1, 2), (4, 3)):  # edema, core, enhancing: by dataset.json of Task01_BrainTumour
        labels[parts["seg"] == ours] = theirs
    save(root / "labelsTr" / f"{name}.nii.gz", labels.T)
    (root / "labelsTr" / f"._{name}.nii.gz").write_bytes(b"mac")  # the published archive has such files
    (root / "imagesTr" / f"._{name}.nii.gz").write_bytes(b"mac")
    return root


def slices(root, name="brats_train_001", seed=0, folder="training", skip=(), numbers=range(SHAPE[0]), first=79):
    """Single slices by the number in the whole scan, the lowest being `first`."""
    for z in numbers:
        for part, volume in scan(seed).items():
            if part not in skip:
                target = root / folder / f"{name}-{z}" / f"{name}_{part}_{first + z:03d}_w.nii.gz"
                save(target, volume[z].astype(float), np.eye(4))
    return root


def cases(root, **options):
    return list(read(root, Options(**{**SMALL, **options})).cases)

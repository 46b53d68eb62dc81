"""Slices opened by themselves are those of the opened volume; points of other programs are where they say."""

import nibabel
import numpy as np
import pytest
from view_server import volume

from berdiff.data.input_spec import InputSpec, Intensity
from berdiff.errors import InputError
from berdiff.inference.inputs import Input
from berdiff.inference.opening import open_input
from berdiff.inference.region import Region
from berdiff.inference.settings import SegmentSettings
from berdiff_viewer.server.common import Limits
from berdiff_viewer.server.grid import upright_place
from berdiff_viewer.server.images import Images
from berdiff_viewer.server.items import Item

RULES = [Intensity("auto"), Intensity("percentiles"), Intensity("brain"), Intensity("dtype")]
RULES += [Intensity("minmax", field=12), Intensity("minmax"), Intensity("window", (-50.0, 300.0))]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.rule} {rule.field or ''}")
@pytest.mark.parametrize("kind", [np.int16, np.uint8, np.float32, "unit", "unit in one slice"])
@pytest.mark.parametrize(
    ("z", "asked", "ends"), [(0, {"slice": True}, (0, 1)), (4, {"slice": True}, (4, 5)), (4, {"extent": 2.0}, (3, 6))]
)
def test_slices_are_scaled_as_their_volume_is(tmp_path, rule, kind, z, asked, ends):
    values = np.random.default_rng(0).integers(0, 250, (24, 20, 6))
    if isinstance(kind, str):
        values = values / np.float32(250)
        values[..., :3] *= 1 if kind == "unit" else 900
    stored = values.astype(np.float32 if isinstance(kind, str) else kind)
    path = tmp_path / "scan.nii"
    nibabel.save(nibabel.Nifti1Image(stored, np.diag([-1.0, -1, 2, 1])), path)
    item = Item("s0", Input("scan", (path,)), "")
    spec = InputSpec((16, 16), ("ct",), ("nodule",), rule)
    settings = SegmentSettings(region=Region((z, 9, 11), **asked))
    whole = open_input(item.input, spec, settings)
    found = Images(Limits()).slab(item, spec, settings)
    assert found is not None
    slab, region = found
    assert (slab.name, slab.grid.first, slab.grid.spacing, region) == ("scan", ends[0], whole.grid.spacing, Region((9, 11)))
    np.testing.assert_array_equal(slab.image, whole.image[:, slice(*ends)])


def test_opened_images_are_kept_up_to_a_size(tmp_path):
    items = []
    for number in range(3):
        path = tmp_path / f"{number}.nii.gz"
        path.write_bytes(volume(np.eye(4)))
        items.append(Item(f"s{number}", Input(str(number), (path,)), ""))
    images = Images(Limits(images_bytes=2 * 40 * 50 * 12 * 4))
    files = [images.file(item) for item in items]
    assert images.file(items[2]) is files[2]
    assert images.file(items[1]) is files[1]
    assert images.file(items[0]) is not files[0]  # the least recently used had to go


@pytest.mark.parametrize("seed", range(8))
def test_a_voxel_of_the_file_is_found_in_the_upright_array(tmp_path, seed):
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    affine = np.eye(4)
    affine[:3, :3], affine[:3, 3] = turn * rng.uniform(0.5, 3, 3), rng.normal(size=3) * 100
    shape = (7, 9, 11)
    stored = rng.permutation(np.prod(shape)).reshape(shape).astype(np.int32)
    nibabel.save(nibabel.Nifti1Image(stored, affine), tmp_path / "scan.nii")
    file = Images(Limits()).file(Item("s0", Input("scan", (tmp_path / "scan.nii",)), ""))
    upright = file.values[0]
    for ijk in np.argwhere(stored >= 0)[::37]:
        assert upright[tuple(upright_place(ijk, file.grid.source, upright.shape))] == stored[tuple(ijk)]
    for bad in ((7, 0, 0), (-1, 0, 0), (0, 0, 11)):
        with pytest.raises(InputError, match="foreground: expected a voxel"):
            upright_place(bad, file.grid.source, upright.shape)

"""Opened images are kept up to a size; points of other programs are where they say."""

import nibabel
import numpy as np
import pytest
from view_server import volume

from berdiff.errors import InputError
from berdiff.inference.inputs import Input
from berdiff_viewer.server.common import Limits
from berdiff_viewer.server.grid import upright_place
from berdiff_viewer.server.items import Item
from berdiff_viewer.server.work import Images


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

"""Answers in the forms that MONAI Label's clients read: multipart with a label map, NRRD for OHIF."""

import gzip
import json
import secrets
from typing import Any

import nibabel
import numpy as np


def multipart(params: dict[str, Any], name: str, content: bytes) -> tuple[bytes, str]:
    """(body, content type): the field `params` in JSON, then the file `image`."""
    boundary = secrets.token_hex(16)
    parts = [
        b'Content-Disposition: form-data; name="params"\r\nContent-Type: application/json\r\n\r\n'
        + json.dumps(params).encode(),
        f'Content-Disposition: form-data; name="image"; filename="{name}"\r\n'.encode()
        + b"Content-Type: application/octet-stream\r\n\r\n"
        + content,
    ]
    mark = f"--{boundary}".encode()
    body = b"".join(mark + b"\r\n" + part + b"\r\n" for part in parts) + mark + b"--\r\n"
    return body, f"multipart/form-data; boundary={boundary}"


def nrrd(nifti: bytes, compress: bool, dtype: str) -> bytes:
    """The label map of a .nii.gz as NRRD; it counts mm to the left and back, where NIfTI has right and front."""
    image = nibabel.Nifti1Image.from_bytes(gzip.decompress(nifti))
    affine = np.diag([-1.0, -1, 1, 1]) @ np.asarray(image.affine)
    values = np.asarray(image.dataobj).astype("<u2" if dtype == "uint16" else "u1")

    def vector(numbers: np.ndarray) -> str:
        return f"({','.join(repr(float(number)) for number in numbers)})"

    header = [
        "NRRD0004",
        f"type: {'uint16' if dtype == 'uint16' else 'uint8'}",
        "dimension: 3",
        "space: left-posterior-superior",
        f"sizes: {' '.join(map(str, values.shape))}",
        f"space directions: {' '.join(vector(column) for column in affine[:3, :3].T)}",
        "kinds: domain domain domain",
        "endian: little",
        f"encoding: {'gzip' if compress else 'raw'}",
        f"space origin: {vector(affine[:3, 3])}",
    ]
    data = values.tobytes("F")
    return "\n".join(header).encode() + b"\n\n" + (gzip.compress(data, mtime=0) if compress else data)

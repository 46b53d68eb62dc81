"""Small DICOM slices for tests, written with pydicom."""

from pathlib import Path

import numpy as np
import pydicom
from pydicom.dataset import FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid


def write_slice(
    path: Path,
    stored: np.ndarray,
    z: float = 0.0,
    *,
    patient: str = "P1",
    series: str = "1.2.3.4",
    spacing: tuple[float, float] = (0.7, 0.7),
    drop: tuple[str, ...] = (),
    **tags: object,
) -> Path:
    """One CT slice of stored values (int16), HU = stored - 1024; `drop` leaves tags out, `tags` overrides them."""
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = CTImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data = pydicom.Dataset()
    data.file_meta = meta
    data.SOPClassUID = CTImageStorage
    data.SOPInstanceUID = meta.MediaStorageSOPInstanceUID
    data.Modality = "CT"
    data.PatientID = patient
    data.StudyInstanceUID = "1.2.3"
    data.SeriesInstanceUID = series
    data.InstanceNumber = 1
    data.ImagePositionPatient = [-100.0, -120.0, z]
    data.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
    data.PixelSpacing = list(spacing)
    data.SliceThickness = 2.5
    data.SamplesPerPixel = 1
    data.PhotometricInterpretation = "MONOCHROME2"
    data.Rows, data.Columns = stored.shape
    data.BitsAllocated = data.BitsStored = 16
    data.HighBit = 15
    data.PixelRepresentation = 1
    data.RescaleSlope = 1
    data.RescaleIntercept = -1024
    data.PixelData = stored.astype("<i2").tobytes()
    for name, value in tags.items():
        setattr(data, name, value)
    for name in drop:
        delattr(data, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    data.save_as(path, enforce_file_format=True)
    return path

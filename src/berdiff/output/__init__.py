"""A result as files and pictures: PNG, NIfTI, DICOM, JSON, the HTML report. One renderer of panels for all."""

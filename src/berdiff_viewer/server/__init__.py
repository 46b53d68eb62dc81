"""`berdiff view`: images in the browser and in 3D Slicer, masks at a click. Needs the extra `berdiff[viewer]`."""

"""One file a layout. Each offers a frozen dataclass `Options` and `read(path, options) -> Reading`."""

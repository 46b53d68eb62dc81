"""What commands open with a bar: a store, of which the embedded one is made on first use."""

from typing import TYPE_CHECKING

from berdiff.display import progress

if TYPE_CHECKING:
    from berdiff.data.store import Store


def open_data(address: str | None) -> "Store":
    """The store at an address; without one the embedded data."""
    from berdiff.data.store import open_store

    with progress("making the embedded data, once") as step:
        return open_store(address, step)

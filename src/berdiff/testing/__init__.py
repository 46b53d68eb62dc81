"""Conformance tests that plug-ins call from tests of their own: docs/extending.md.

`strategies` needs hypothesis; everything else needs what berdiff itself needs.
"""

from berdiff.testing.contract import ContractError
from berdiff.testing.formats import check_format
from berdiff.testing.kernels import check_kernel
from berdiff.testing.methods import check_method
from berdiff.testing.networks import check_network
from berdiff.testing.sources import check_source

__all__ = ["ContractError", "check_format", "check_kernel", "check_method", "check_network", "check_source"]

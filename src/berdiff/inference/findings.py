"""Which findings are asked for."""

from berdiff import schema
from berdiff.data.describe import expect
from berdiff.inference.candidates import Candidates
from berdiff.inference.centers import Centers
from berdiff.inference.finding import FindingSource
from berdiff.inference.region import Region
from berdiff.inference.settings import FindingOptions, option


def open_findings(options: FindingOptions, region: Region) -> FindingSource | None:
    """Where the findings come from; None where none are asked for, and the inputs are segmented as they are."""
    schema.check(options, FindingOptions, option)
    if options.centers is None and options.candidates is None:
        for name, given in (("--extent", region.extent is not None), ("--slice", region.slice)):
            expect(not given or region.center, name, "--center Z Y X, --centers or --candidates beside it")
        return None
    given = "--centers" if options.candidates is None else "--candidates"
    expect(not region.chosen, given, "no --center, --box or --slices beside it", "both")
    if options.centers is not None:
        return Centers(options.centers, options.centers_unit == "mm")
    assert options.candidates is not None
    return Candidates(options.candidates)

"""Which channels of an HDF5 file's labels hold whose mask."""

from collections.abc import Sequence

from berdiff.data.describe import expect


def rater_channels(
    cases: list[str],
    channels: int,
    raters: Sequence[str],
    names: list[str] | None,
    counts: list[str] | None,
    what: str,
) -> list[tuple[list[int], int]]:
    """(the channels to read, how many hold a mask) of each case.

    raters: those asked for, by name, or without `names` by the number of the channel; none: all
    names: of the raters in the order of the channels; or, for each case, its own with commas between them
    counts: how many raters each case has, whose channels come first; None: every channel is one
    `what` names the labels in an error.
    """
    chosen: list[tuple[list[int], int]] = []
    wanted = _wanted(len(cases), channels, raters, names)
    for case, numbers, count in zip(cases, wanted, counts or [str(channels)] * len(cases), strict=True):
        fits = count.isdecimal() and 1 <= int(count) <= channels
        expect(fits, f"{what}: case {case!r}", f"1 to {channels} raters, one per channel", f"{count} in --counts")
        present = [number for number in numbers if number < int(count)]
        expect(present, f"{what}: case {case!r}", f"a mask of {' or '.join(raters)} (--raters)")
        chosen.append((present, int(count)))
    return chosen


def _wanted(n: int, channels: int, raters: Sequence[str], names: list[str] | None) -> list[list[int]]:
    """The channels of the raters that are asked for, of each of n cases."""
    if not raters:
        return [list(range(channels))] * n
    if names is None:
        numbers = [int(rater) if rater.isdecimal() else channels for rater in raters]
        expected = f"channels from 0 to {channels - 1} (or names, see --rater-names)"
        expect(max(numbers) < channels, "--raters", expected, " ".join(raters))
        return [numbers] * n
    listed = [[name.strip() for name in text.split(",")] for text in names]
    most = max(map(len, listed), default=0)
    if len(listed) == channels and most == 1:
        listed = [[name for (name,) in listed]] * n
    fits = len(listed) == n and most <= channels
    expected = f"{channels} names, or for each of {n} images up to {channels} with commas between them"
    expect(fits, "--rater-names", expected, f"{len(names)} texts of up to {most} names")
    known = sorted(set().union(*listed))
    for rater in raters:
        expect(rater in known, "--raters", f"names among {', '.join(known)}", rater)
    return [[own.index(rater) for rater in raters if rater in own] for own in listed]

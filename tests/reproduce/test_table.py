"""`berdiff table`: what is asked is checked before anything is trained."""

from dataclasses import fields
from typing import get_args, get_type_hints

from berdiff.cli.main import main
from fakes import make_store
from reproduce.cli.table import MakeTable
from reproduce.tables import TABLES


def test_the_command_names_every_table() -> None:
    assert set(get_args(get_type_hints(MakeTable)[fields(MakeTable)[0].name])) == set(TABLES)


def test_bad_input_is_one_sentence_and_writes_nothing(tmp_path, capsys) -> None:
    address = str(make_store(tmp_path, train=2, val=0))
    for options, words in (
        (["losses", "--minutes", "16"], "--minutes: expected more than 0 and at most 15, found 16"),
        (["losses", "--minutes", "5", "--steps", "9"], "--minutes and --steps: expected one of them"),
        (["losses", "--steps", "1"], "--steps: expected at least 2"),
        (["losses", "--scale", "paper", "--minutes", "5"], "expected none with --scale paper"),
        (["losses", "--seeds", "0"], "--seeds: expected at least 1, found 0"),
        (["losses", "--slices", "0"], "--slices: expected at least 1, found 0"),
        (["losses", "--model", "lidc"], "--model: expected none for the table losses"),
        (["sampling", "--model", "lidc", "--seeds", "2"], "--seeds: expected 1 with --model"),
        (["losses", "--also", "nowhere"], "--also: expected the folder of a table with evaluations, found nowhere"),
        (
            ["losses", "--rows", "kl", "ce"],
            "--rows: expected rows of losses (kl, kl-soft-ddpm, bce, both, mask), found",
        ),
        # the real scale cannot take the centre 64x64 of 16x16 images
        (["losses", "--dry-run"], "--crop: expected at most 16x16, the size of the images, found 64x64"),
    ):
        assert main(["table", *options, "--data", address, "--out", str(tmp_path / "out")]) == 2
        error = capsys.readouterr().err
        assert words in error
        assert sum(not line.startswith("device: ") for line in error.splitlines()) == 1
        assert not (tmp_path / "out").exists()

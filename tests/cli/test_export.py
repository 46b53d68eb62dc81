"""`berdiff export` from the command line."""

import pytest

from berdiff.cli.main import main
from berdiff.methods import export, folder
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.gaussian import GaussianDiffusion
from fakes import make_spec


def test_bad_input_is_one_sentence(tmp_path, capsys, monkeypatch):
    model = str(tmp_path / "model")
    folder.save(BerDiff(preset="fast-tiny", T=50).build(make_spec((16, 24))), model)
    folder.save(GaussianDiffusion(preset="fast-tiny", T=50).build(make_spec((16, 24))), tmp_path / "gaussian")
    out = ["--out", str(tmp_path / "onnx")]
    monkeypatch.setattr(export, "_NEEDED", ())
    for argv, message in [
        ([model, "--out", str(tmp_path)], f"--out: {tmp_path}"),
        ([model, *out, "--size", "16", "20"], "--size: expected height and width in multiples of 8, found 16 20"),
        ([str(tmp_path / "gaussian"), *out], "the model: .* gaussian"),
        ([model, *out], "a_package_of_nobody"),
    ]:
        assert main(["export", *argv]) == 2
        *_, error = capsys.readouterr().err.splitlines()
        with pytest.raises(ValueError, match=message):
            raise ValueError(error)
        if argv[0] != model:
            monkeypatch.setattr(export, "_NEEDED", ("a_package_of_nobody",))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gaussian", "model"]

"""The figure and the table of the 1D toy: the functions with what was learnt, and the MSE over training."""

from pathlib import Path

from berdiff import schema
from berdiff.evaluation.layout import pipes
from berdiff.files import write_text
from reproduce.picture import picture
from reproduce.toy import FUNCTIONS, ToyConfig, ToyCurve

COLOURS = {"bernoulli": "tab:blue", "gaussian": "tab:orange"}


def noise_floor(config: ToyConfig, function: str) -> float:
    """The MSE of a perfect model: the mean of `samples` coin flips still varies by p (1 - p) / samples."""
    p = FUNCTIONS[function](config.grid)
    return float((p * (1 - p)).mean() / config.samples)


def plot_toy(config: ToyConfig, curves: list[ToyCurve], path: Path) -> None:
    """Two columns (functions); top: true and learnt probability, bottom: MSE over iterations, all seeds."""
    names, x = list(dict.fromkeys(curve.function for curve in curves)), config.grid
    with picture(path, 5 * len(names), 6.5) as figure:
        for (top, bottom), name in zip(figure.subplots(2, len(names), squeeze=False).T, names, strict=True):
            top.set(title=f"{name}: p(y = 1 | x)", xlabel="x", ylim=(-0.05, 1.05))
            bottom.set(
                title="MSE of the estimated probability", xlabel="training iterations", xscale="log", yscale="log"
            )
            for curve in (c for c in curves if c.function == name):
                style = {"color": COLOURS[curve.kernel]}
                top.plot(
                    x, curve.probability[0], ".", markersize=2, alpha=0.6, label=f"{curve.kernel}, seed 0", **style
                )
                bottom.plot(curve.iterations, curve.mse.mean(1), "o-", label=f"{curve.kernel}, mean", **style)
                low, high = curve.mse.min(1).values, curve.mse.max(1).values
                bottom.fill_between(curve.iterations, low, high, alpha=0.2, label="range over seeds", **style)
            top.plot(x, FUNCTIONS[name](x), "k", linewidth=1, label="truth")
            bottom.axhline(noise_floor(config, name), color="k", linestyle=":", label="perfect model")
            top.legend(markerscale=4)
            bottom.legend()


def toy_table(config: ToyConfig, curves: list[ToyCurve]) -> str:
    """The MSE after training as Markdown, mean and standard deviation over seeds."""
    title = (
        f"MSE of the estimated probability after {config.checkpoints[-1]} iterations, {config.points} points x "
        f"{config.samples} samples in {config.steps} steps, {config.seeds} seeds"
    )
    body = []
    for curve in curves:
        last = curve.mse[-1]
        spread = float(last.std()) if len(last) > 1 else float("nan")
        figures = (float(last.mean()), spread, noise_floor(config, curve.function))
        body.append([curve.function, curve.kernel, *(f"{value:.4f}" for value in figures)])
    return "\n".join([title, "", *pipes(["function", "kernel", "mean", "std over seeds", "a perfect model"], body)])


def write_toy(config: ToyConfig, curves: list[ToyCurve], out: Path) -> str:
    """toy.png, toy.md and toy.json (every MSE of every seed) in `out`; returns the table."""
    table = toy_table(config, curves)
    plot_toy(config, curves, out / "toy.png")
    write_text(out / "toy.md", table)
    rows = [
        {"function": c.function, "kernel": c.kernel, "iterations": c.iterations, "mse": c.mse.tolist()} for c in curves
    ]
    write_text(out / "toy.json", schema.dump(rows))
    return table

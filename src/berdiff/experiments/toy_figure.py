"""The figure and the table of the 1D toy: the functions with what was learnt, and the MSE over training."""

import json
from pathlib import Path

import matplotlib
import torch

from berdiff.experiments.toy import FUNCTIONS, Curve, ToyConfig
from berdiff.files import whole_file, write_text

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {"bernoulli": "tab:blue", "gaussian": "tab:orange"}


def noise_floor(config: ToyConfig, function: str) -> float:
    """The MSE of a perfect model: the mean of `samples` coin flips still varies by p (1 - p) / samples."""
    p = FUNCTIONS[function]((torch.arange(config.points) + 0.5) / config.points)
    return float((p * (1 - p)).mean() / config.samples)


def draw_toy(config: ToyConfig, curves: list[Curve], path: Path) -> None:
    """Two columns (functions); top: true and learnt probability, bottom: MSE over iterations, all seeds."""
    names = list(dict.fromkeys(curve.function for curve in curves))
    figure, axes = plt.subplots(2, len(names), figsize=(5 * len(names), 6.5), squeeze=False, layout="constrained")
    x = (torch.arange(config.points) + 0.5) / config.points
    for column, name in enumerate(names):
        top, bottom = axes[:, column]
        top.set(title=f"{name}: p(y = 1 | x)", xlabel="x", ylim=(-0.05, 1.05))
        bottom.set(title="MSE of the estimated probability", xlabel="training iterations", xscale="log", yscale="log")
        for curve in (c for c in curves if c.function == name):
            colour = COLOURS[curve.kernel]
            top.plot(
                x, curve.probability[0], ".", color=colour, markersize=2, alpha=0.6, label=f"{curve.kernel}, seed 0"
            )
            bottom.plot(curve.iterations, curve.mse.mean(1), "o-", color=colour, label=f"{curve.kernel}, mean")
            low, high = curve.mse.min(1).values, curve.mse.max(1).values
            bottom.fill_between(curve.iterations, low, high, color=colour, alpha=0.2, label="range over seeds")
        top.plot(x, FUNCTIONS[name](x), "k", linewidth=1, label="truth")
        bottom.axhline(noise_floor(config, name), color="k", linestyle=":", label="perfect model")
        top.legend(markerscale=4)
        bottom.legend()
    with whole_file(path) as part:
        figure.savefig(part, format="png", dpi=110)
    plt.close(figure)


def toy_table(config: ToyConfig, curves: list[Curve]) -> str:
    """The MSE after training as Markdown, mean and standard deviation over seeds."""
    lines = [
        f"MSE of the estimated probability after {config.checkpoints[-1]} iterations, {config.points} points x "
        f"{config.samples} samples in {config.steps} steps, {config.seeds} seeds",
        "",
        "| function | kernel | mean | std over seeds | a perfect model |",
        "| --- | --- | --- | --- | --- |",
    ]
    for curve in curves:
        last = curve.mse[-1]
        spread = float(last.std()) if len(last) > 1 else float("nan")
        floor = noise_floor(config, curve.function)
        lines.append(f"| {curve.function} | {curve.kernel} | {float(last.mean()):.4f} | {spread:.4f} | {floor:.4f} |")
    return "\n".join(lines)


def write_toy(config: ToyConfig, curves: list[Curve], out: Path) -> str:
    """toy.png, toy.md and toy.json (every MSE of every seed) in `out`; returns the table."""
    table = toy_table(config, curves)
    draw_toy(config, curves, out / "toy.png")
    write_text(out / "toy.md", table + "\n")
    rows = [
        {"function": c.function, "kernel": c.kernel, "iterations": list(c.iterations), "mse": c.mse.tolist()}
        for c in curves
    ]
    write_text(out / "toy.json", json.dumps(rows, indent=2) + "\n")
    return table

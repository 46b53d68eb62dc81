"""Recipes of the methods of table 4, which give one answer per image: on BraTS, four sequences in, the whole slice.

`*-cpu` for two cores, `*-paper` by the paper's statement (AdamW, batches of 32, 1e-4, for every network alike), `*-own`
by the settings of the method's authors where these are others. What we do not have of theirs is in docs/methods.
"""

from typing import TypeVar

from berdiff.experiments.recipes.shared import MAX_STEPS, TWO_CORES
from berdiff.methods.deterministic_config import DeterministicConfig
from berdiff.methods.mednext import MedNeXt
from berdiff.methods.nnunet import NNUNet
from berdiff.methods.swinunetr import SwinUNETR
from berdiff.methods.transunet import TransUNet
from berdiff.methods.unet import UNet
from berdiff.training.config import DataConfig, LoopConfig, OptimConfig, TrainConfig, ValidationConfig

D = TypeVar("D", bound=DeterministicConfig)
AUGMENTED = DataConfig(augment=True, shift=0)  # turns, flips, mild intensity changes; all of the slice: no crop
CPU_MINUTES = 40.0


# --- two cores -------------------------------------------------------------------------------------------------------


def unet_cpu() -> TrainConfig[UNet]:
    """The U-net of the `small` diffusion's own network on BraTS slices of 128x128, without any diffusion.

    command: berdiff train unet-cpu --data brats.zarr --out runs/unet-cpu
    cost: 40 CPU minutes, so 20 minutes on two cores
    expected: see docs/methods/unet.md
    """
    return _cpu("unet-cpu", UNet("small"), lr=1e-3)


def nnunet_cpu() -> TrainConfig[NNUNet]:
    """nnU-Net's network of 3.3 M weights with its loss and deep supervision, on BraTS slices of 128x128.

    command: berdiff train nnunet-cpu --data brats.zarr --out runs/nnunet-cpu
    cost: 40 CPU minutes, so 20 minutes on two cores
    expected: see docs/methods/nnunet.md
    """
    return _cpu("nnunet-cpu", NNUNet("small"), lr=1e-3)


def transunet_cpu() -> TrainConfig[TransUNet]:
    """TransU-Net with 6.0 M fresh weights, on BraTS slices of 128x128.

    command: berdiff train transunet-cpu --data brats.zarr --out runs/transunet-cpu
    cost: 40 CPU minutes, so 20 minutes on two cores
    expected: see docs/methods/transunet.md
    """
    return _cpu("transunet-cpu", TransUNet("small"), lr=3e-4)


def swinunetr_cpu() -> TrainConfig[SwinUNETR]:
    """Swin UNETR with 6.3 M weights, on BraTS slices of 128x128.

    command: berdiff train swinunetr-cpu --data brats.zarr --out runs/swinunetr-cpu
    cost: 40 CPU minutes, so 20 minutes on two cores
    expected: see docs/methods/swinunetr.md
    """
    return _cpu("swinunetr-cpu", SwinUNETR("small"), lr=5e-4)


def mednext_cpu() -> TrainConfig[MedNeXt]:
    """MedNeXt with 3.1 M weights, on BraTS slices of 128x128.

    command: berdiff train mednext-cpu --data brats.zarr --out runs/mednext-cpu
    cost: 40 CPU minutes, so 20 minutes on two cores
    expected: see docs/methods/mednext.md
    """
    return _cpu("mednext-cpu", MedNeXt("small"), lr=1e-3)


# --- the paper's statement -------------------------------------------------------------------------------------------


def unet_paper() -> TrainConfig[UNet]:
    """The U-net of the paper's 224x224 diffusion network, without any diffusion.

    command: berdiff train unet-paper --data brats.zarr --out runs/unet-paper
    cost: made for a GPU; `--dry-run` measures memory and time on the machine at hand
    expected: the paper has Dice 89.2 % (its test set); not yet trained by us
    """
    return _paper("unet-paper", UNet("paper-224"))


def nnunet_paper() -> TrainConfig[NNUNet]:
    """nnU-Net's network of 20.6 M weights, trained as the paper trains all networks.

    command: berdiff train nnunet-paper --data brats.zarr --out runs/nnunet-paper
    cost: made for a GPU; `--dry-run` measures memory and time on the machine at hand
    expected: the paper has Dice 88.2 % (its test set); not yet trained by us
    """
    return _paper("nnunet-paper", NNUNet("paper"))


def transunet_paper() -> TrainConfig[TransUNet]:
    """TransU-Net with 105.3 M fresh weights, trained as the paper trains all networks.

    command: berdiff train transunet-paper --data brats.zarr --out runs/transunet-paper
    cost: made for a GPU; `--dry-run` measures memory and time on the machine at hand
    expected: the paper has Dice 88.6 % (its test set), from which weights it does not say; not yet trained by us
    """
    return _paper("transunet-paper", TransUNet("paper"))


def swinunetr_paper() -> TrainConfig[SwinUNETR]:
    """Swin UNETR with 25.1 M weights, trained as the paper trains all networks.

    command: berdiff train swinunetr-paper --data brats.zarr --out runs/swinunetr-paper
    cost: made for a GPU; `--dry-run` measures memory and time on the machine at hand
    expected: the paper has Dice 89.0 % (its test set); not yet trained by us
    """
    return _paper("swinunetr-paper", SwinUNETR("paper"))


def mednext_paper() -> TrainConfig[MedNeXt]:
    """MedNeXt S, 5.5 M weights, trained as the paper trains all networks.

    command: berdiff train mednext-paper --data brats.zarr --out runs/mednext-paper
    cost: made for a GPU; `--dry-run` measures memory and time on the machine at hand
    expected: not in the paper; not yet trained by us
    """
    return _paper("mednext-paper", MedNeXt("paper"))


# --- their authors' settings -----------------------------------------------------------------------------------------


def nnunet_own() -> TrainConfig[NNUNet]:
    """nnU-Net by its own optimiser: SGD with Nesterov's momentum, poly decay over 1000 x 250 steps.

    command: berdiff train nnunet-own --data brats.zarr --out runs/nnunet-own
    cost: made for a GPU; three times nnunet-paper
    expected: not yet trained by us; its augmentation, oversampling and test-time mirroring are not here
    """
    steps = 250_000
    optim = OptimConfig(
        kind="sgd",
        lr=1e-2,
        weight_decay=3e-5,
        momentum=0.99,
        nesterov=True,
        clip_norm=12.0,
        ema_decay=0.0,
        decay="poly",
        decay_steps=steps,
    )
    return _own("nnunet-own", NNUNet("paper"), optim, steps, batch=32)


def transunet_own() -> TrainConfig[TransUNet]:
    """TransU-Net by its authors' optimiser: SGD, poly decay over 150 epochs of the paper's 55,174 slices.

    command: berdiff train transunet-own --data brats.zarr --out runs/transunet-own
    cost: made for a GPU; three times transunet-paper
    expected: not yet trained by us; its authors begin from ImageNet's weights, this from fresh ones
    """
    steps = 150 * 55_174 // 24
    optim = OptimConfig(
        kind="sgd", lr=1e-2, weight_decay=1e-4, momentum=0.9, ema_decay=0.0, decay="poly", decay_steps=steps
    )
    model = TransUNet("paper", lambda_bce=0.5, lambda_dice=0.5)
    return _own("transunet-own", model, optim, steps, batch=24)


def swinunetr_own() -> TrainConfig[SwinUNETR]:
    """Swin UNETR by its release: the soft Dice loss alone, a sixth of the steps as warm-up, then a cosine.

    command: berdiff train swinunetr-own --data brats.zarr --out runs/swinunetr-own
    cost: made for a GPU; as swinunetr-paper
    expected: not yet trained by us; its authors train in 3D
    """
    steps = 86_500
    optim = OptimConfig(
        lr=1e-4, weight_decay=1e-5, ema_decay=0.0, warmup_steps=steps // 6, decay="cosine", decay_steps=steps
    )
    return _own("swinunetr-own", SwinUNETR("paper", lambda_bce=0.0), optim, steps, batch=32)


def mednext_own() -> TrainConfig[MedNeXt]:
    """MedNeXt by its authors' optimiser: AdamW at 1e-3 and nnU-Net's poly decay over 1000 x 250 steps.

    command: berdiff train mednext-own --data brats.zarr --out runs/mednext-own
    cost: made for a GPU; three times mednext-paper
    expected: not yet trained by us; its authors train in 3D
    """
    steps = 250_000
    optim = OptimConfig(lr=1e-3, weight_decay=3e-5, clip_norm=12.0, ema_decay=0.0, decay="poly", decay_steps=steps)
    return _own("mednext-own", MedNeXt("paper"), optim, steps, batch=32)


def _cpu(name: str, model: D, lr: float) -> TrainConfig[D]:
    """The learning rate falls to 0 over the CPU minutes, however many steps they are enough for."""
    return TrainConfig(
        recipe=name,
        model=model,
        data=AUGMENTED,
        optim=OptimConfig(lr=lr, warmup_steps=100, decay="cosine", clip_norm=1.0, ema_decay=0.998),
        loop=LoopConfig(
            batch_size=8, max_steps=MAX_STEPS, max_cpu_minutes=CPU_MINUTES, checkpoint_every=100, log_every=25
        ),
        validation=ValidationConfig(every=200, cases=32, samples=1),
        engine=TWO_CORES,
    )


def _paper(name: str, model: D) -> TrainConfig[D]:
    """As `brats-paper`, for which the paper names no iterations either."""
    return TrainConfig(
        recipe=name,
        model=model,
        optim=OptimConfig(lr=1e-4),
        loop=LoopConfig(batch_size=32, max_steps=86_500, checkpoint_every=1000),
        validation=ValidationConfig(every=2000, cases=64, samples=1),
    )


def _own(name: str, model: D, optim: OptimConfig, steps: int, batch: int) -> TrainConfig[D]:
    return TrainConfig(
        recipe=name,
        model=model,
        data=AUGMENTED,
        optim=optim,
        loop=LoopConfig(batch_size=batch, max_steps=steps, checkpoint_every=1000),
        validation=ValidationConfig(every=5000, cases=64, samples=1),
    )


RECIPES = (unet_cpu, nnunet_cpu, transunet_cpu, swinunetr_cpu, mednext_cpu)
RECIPES += (unet_paper, nnunet_paper, transunet_paper, swinunetr_paper, mednext_paper)
RECIPES += (nnunet_own, transunet_own, swinunetr_own, mednext_own)

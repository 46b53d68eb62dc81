"""A diffusion whose condition net also guesses the mask: one more term of the loss, nothing more to sample."""

from torch import Tensor

from berdiff.data.input_spec import InputSpec
from berdiff.diffusion.kernels.base import Kernel
from berdiff.diffusion.random import Generators
from berdiff.methods.base import Terms, pick_raters
from berdiff.methods.diffusion import DiffusionSegmenter
from berdiff.methods.medsegdiff import MedSegDiff
from berdiff.networks.medsegdiff import MaskGuess, MedSegDiffNet


class GuessingDiffusion(DiffusionSegmenter):
    config: MedSegDiff  # pyright: ignore[reportIncompatibleVariableOverride]
    network: MedSegDiffNet  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, config: MedSegDiff, input_spec: InputSpec, network: MedSegDiffNet, kernel: Kernel) -> None:
        super().__init__(config, input_spec, network, kernel)
        self.guess = MaskGuess(network.sizes, self.targets)

    def loss(self, image: Tensor, masks: Tensor, generators: Generators) -> Terms:
        """Algorithm 1, its draws in the same order, and the squared error of the guess from the same pass."""
        self.check_batch(image, masks)
        y0 = pick_raters(masks, self.config.masks_per_image, generators).to(image.dtype)
        t = self._pick_times(image, generators)
        y_t, eps = self.kernel.q_sample(y0, t, generators)
        output, conditions = self.network.denoise_and_condition(y_t, t, self.network.encode(image))
        terms = self.kernel.loss(output.float(), y0, y_t, eps, t)
        guess = (self.guess(conditions).float().reshape(y0.shape) - y0).square().mean()
        return {**terms, "loss": terms["loss"] + self.config.lambda_guess * guess, "guess": guess}

    def tiled(self, size: tuple[int, ...], overlap: float) -> DiffusionSegmenter:
        """Without the guess, which no sample needs."""
        plain = DiffusionSegmenter(self.config, self.input_spec, self.network, self.kernel)
        plain.sampler, plain.masks_per_pass = self.sampler, self.masks_per_pass
        return plain.tiled(size, overlap)

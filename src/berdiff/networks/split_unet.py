"""MONAI's diffusion U-Net in two halves, for networks whose condition joins between or before them."""

from monai.networks.nets.diffusion_model_unet import DiffusionModelUNet, get_timestep_embedding
from torch import Tensor

from berdiff.networks.paper import UNetPreset


class SplitUNet(DiffusionModelUNet):
    """`up(*down(conv_in(x), t))` is the whole network."""

    def __init__(self, sizes: UNetPreset, channels: int, targets: int) -> None:
        """`channels` come in."""
        super().__init__(
            spatial_dims=2,
            in_channels=channels,
            out_channels=targets,
            channels=sizes.channels,
            attention_levels=tuple(level in sizes.attention for level in range(len(sizes.channels))),
            num_res_blocks=sizes.res_blocks,
            num_head_channels=sizes.head_channels or sizes.channels,
            norm_num_groups=sizes.groups,
            norm_eps=1e-5,
        )

    def down(self, h: Tensor, t: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """(what leaves each level for the next, skips, embedding of t) from what `conv_in` gave, t `(B,)`.

        What leaves level i has the resolution of level i + 1; what leaves the last goes to the middle.
        """
        embedding: Tensor = self.time_embed(get_timestep_embedding(t, self.block_out_channels[0]).to(h.dtype))
        levels: list[Tensor] = []
        skips = [h]
        for block in self.down_blocks:
            h, of_level = block(hidden_states=h, temb=embedding)
            levels.append(h)
            skips += of_level
        return levels, skips, embedding

    def up(self, h: Tensor, skips: list[Tensor], embedding: Tensor) -> Tensor:
        """The middle and the way up."""
        h = self.middle_block(hidden_states=h, temb=embedding)
        left = list(skips)
        for block in self.up_blocks:
            count = len(block.resnets)  # pyright: ignore[reportArgumentType]
            left, of_level = left[:-count], left[-count:]
            h = block(hidden_states=h, res_hidden_states_list=of_level, temb=embedding)
        return self.out(h)

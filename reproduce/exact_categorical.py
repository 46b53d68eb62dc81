"""Which sampler is right with three exclusive classes? The exact answer of `exact.py` on 2x3 pixels: 729 states.

Each pixel is background or one of two targets. The estimates follow from Bayes' rule over all states, one step is a
729x729 matrix built from `step_probs`, the very function that `Categorical.step` draws from, and the law of the masks
that share their noise is exact too: the areas of polygons (`shared_law`).

`python -m reproduce.exact_categorical` prints the table.
"""

from itertools import permutations, product

import torch
from torch import Tensor

from berdiff.diffusion.categorical import q_marginal
from berdiff.diffusion.kernels.categorical import step_probs
from berdiff.diffusion.sampler import Sampler
from berdiff.diffusion.schedule import NoiseSchedule
from reproduce.exact import Estimate, Masks, markdown

C = 3
HEIGHT, WIDTH = 2, 3
PIXELS = HEIGHT * WIDTH
NUMBERS = torch.tensor(list(product(range(C), repeat=PIXELS)))
"""The class of each pixel `(729, 6)`: row i holds the ternary digits of i; 0 is the background, 1 and 2 the targets."""
STATES = torch.eye(C, dtype=torch.float64)[NUMBERS].transpose(1, 2).reshape(-1, C, HEIGHT, WIDTH).roll(-1, 1)
"""The same `(729, 3, 2, 3)` as the kernel has it: both targets, then the background."""

SUBSETS = torch.tensor(list(product((False, True), repeat=PIXELS)))
"""Of the pixels `(64, 6)`, row i by the binary digits of i."""
FURTHEST = 700.0  # a logarithm that exp still bears: the ratio of a probability to one that is 0


def truth() -> Tensor:
    """p(y0 | x) `(2, 729)` for the one-bit image x: nothing, or a lesion of either target whose pixels hold together.

    x = 0 is a doubtful image (often empty, both targets equally likely), x = 1 a clear one (seldom empty, a larger
    lesion, more often the first target). The lesion is a Potts model: neighbours like to be of one class.
    """
    grid = NUMBERS.reshape(-1, HEIGHT, WIDTH)
    agree = (grid[:, 1:] == grid[:, :-1]).sum((1, 2)) + (grid[:, :, 1:] == grid[:, :, :-1]).sum((1, 2))
    first, second = (NUMBERS.eq(k).sum(1) for k in (1, 2))
    empty, field, lean = torch.tensor([[0.4, 0.1], [-0.2, 0.2], [0.0, 0.1]], dtype=torch.float64)[..., None]
    law = (1 - empty) * torch.softmax(1.2 * agree + field * (first + second) + lean * (first - second), 1)
    law[:, 0] += empty[:, 0]
    return law


def expected_mask(schedule: NoiseSchedule, law: Tensor, t: int, estimate: Estimate = "posterior") -> Tensor:
    """`(X, 729, 3, 2, 3)`: the probability of each class for every y_t, by Bayes' rule over all y0; law `(X, 729)`.

    "posterior": P(y0_i | y_t, x); "prior": P(y0_i | y_t without pixel i, x), summed over all values of that pixel.
    """
    pixel_states = torch.eye(C, dtype=law.dtype)[None, ..., None, None]
    one = q_marginal(schedule, pixel_states, t)[0, ..., 0, 0]  # [y0, y_t] of one pixel
    likelihood = torch.ones(1, 1, dtype=law.dtype)
    for _ in range(PIXELS):
        likelihood = torch.kron(likelihood, one)  # noise comes to each pixel by itself
    joint = (law[:, None] * STATES.flatten(1).T) @ likelihood  # (X, 3 * 6, 729)
    joint = joint.reshape(-1, C, PIXELS, len(STATES))
    if estimate == "prior":
        joint = torch.stack([_without(joint[:, :, pixel], pixel) for pixel in range(PIXELS)], 2)
    joint = joint / joint.sum(1, keepdim=True)
    return joint.permute(0, 3, 1, 2).reshape(-1, *STATES.shape)


def _without(joint: Tensor, pixel: int) -> Tensor:
    """joint `(X, 3, 729)`, summed over the three states of y_t that differ in this pixel alone."""
    split = joint.reshape(*joint.shape[:2], C**pixel, C, -1)
    return split.sum(3, keepdim=True).expand_as(split).flatten(2)


def transition(p: Tensor) -> Tensor:
    """The matrix `(..., 729, 729)` from each y_t to each y_s, from the classes' probabilities `(..., 729, 3, 2, 3)`."""
    matrix = torch.ones_like(p[..., 0, 0, :1])
    for pixel in p.roll(1, -3).flatten(-2).unbind(-1):
        matrix = (matrix[..., :, None] * pixel[..., None, :]).flatten(-2)
    return matrix


def step_matrix(schedule: NoiseSchedule, sampler: Sampler, y_t: Tensor, y0_hat: Tensor, t: int, s: int) -> Tensor:
    """The matrix `(X, 729, 729)` of one step, for every y_t `(X, 729, 3, 2, 3)` and its estimate of y0."""
    if sampler.noise == "independent" or (s == 0 and sampler.last_step == "threshold"):
        return transition(step_probs(schedule, sampler, y_t, y0_hat, t, s))
    classes = torch.eye(C, dtype=y_t.dtype).roll(-1, 1)[None, ..., None, None]  # as STATES, of one pixel
    of_y_t, of_y0 = classes.repeat_interleave(C, 1), classes.repeat(1, C, 1, 1, 1)
    follow = step_probs(schedule, sampler, of_y_t, of_y0, t, s)[0]
    follow = follow.flatten(1).roll(1, 1).reshape(C, C, C)  # [y_t, y0, y_s]
    matrix = shared_law(y0_hat)  # from y_t to a hard y0, and from there each pixel goes by itself
    for pixel in range(PIXELS):
        split = matrix.reshape(*matrix.shape[:2], C**pixel, C, -1)
        matrix = torch.einsum("xnakb,nkj->xnajb", split, follow[NUMBERS[:, pixel]]).flatten(2)
    return matrix


def shared_law(p: Tensor) -> Tensor:
    """The law `(..., 729)` of the masks of `draw_shared`, from estimates `(..., 3, 2, 3)`: areas in a triangle.

    A pixel takes the class whose clock_c / p_c is least. Three exponential clocks over their sum, x, are uniform in the
    triangle x_0 + x_1 + x_2 = 1, and the masks are its cells: pixel i takes class c where x_c / x_d <= p_ic / p_id for
    each other d. All pixels together leave at most six such bounds, each a straight line through a corner: a hexagon.
    """
    log_p = p.flatten(-2).clamp(min=1e-300).log().roll(1, -2)  # (..., 3, 6), class 0 the background
    bound: dict[tuple[int, int], Tensor] = {}  # of log x_c - log x_d
    for c, d in permutations(range(C), 2):
        ratios = (log_p[..., c, :] - log_p[..., d, :]).clamp(-FURTHEST, FURTHEST).unsqueeze(-2)  # (..., 1, 6)
        least = torch.where(SUBSETS, ratios, FURTHEST).amin(-1)  # over each subset of the pixels
        bound[c, d] = least[..., (NUMBERS.eq(c) * 2 ** torch.arange(PIXELS - 1, -1, -1)).sum(1)]
    tight = {(c, d): torch.minimum(bound[c, d], bound[c, 3 - c - d] + bound[3 - c - d, d]) for c, d in bound}
    possible = torch.stack([tight[c, d] + tight[d, c] > 0 for c, d in tight]).all(0)
    law = torch.zeros_like(tight[0, 1])
    law[possible] = _area({pair: value[possible] for pair, value in tight.items()})
    return law


def _area(bound: dict[tuple[int, int], Tensor]) -> Tensor:
    """The share of the triangle where log x_c - log x_d <= bound[c, d]; each bound is tight."""
    u_low, u_high, v_low, v_high = -bound[0, 1], bound[1, 0], -bound[0, 2], bound[2, 0]
    # the corners around the hexagon, in coordinates u = log x_1 / x_0 and v = log x_2 / x_0
    u = torch.stack([u_low, v_low + bound[1, 2], u_high, u_high, v_high - bound[2, 1], u_low])
    v = torch.stack([v_low, v_low, u_high - bound[1, 2], v_high, v_high, u_low + bound[2, 1]])
    x_1, x_2, _ = torch.stack([u, v, torch.zeros_like(u)]).softmax(0)
    return (x_1 * x_2.roll(-1, 0) - x_1.roll(-1, 0) * x_2).sum(0)  # twice the area; the triangle's is 1 / 2


CATEGORICAL = Masks(STATES, truth, expected_mask, step_matrix, None)

if __name__ == "__main__":
    print(markdown(masks=CATEGORICAL))

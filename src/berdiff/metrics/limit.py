"""What the exact distribution of raters would score: the limit of GED for a model that has not seen the case's raters.

The R raters of a case are themselves a sample of p(y|x). Let them and the n samples of a model that knows p(y|x) be
independent draws of it, and D = E d(Y, Y') the mean distance of two of them. A mask is at distance 0 to itself, so a
mean over all pairs holds D only on the share of distinct ones:

    E d_SY = D,   E d_SS = D (1 - 1/n),   E d_YY = D (1 - 1/R),
    E GED_n = 2 D - D (1 - 1/n) - D (1 - 1/R) = D (1/R + 1/n),   unbiased in n: D / R.

GED is proper: any answer Q that does not depend on the raters has 2 E d_QY - E d_QQ >= D, with equality for p(y|x). So
D / R is a bound for every model and for sets that are chosen jointly; D / n is the price of independent samples alone,
and a model of less diversity pays less of it. Both are of raters that are independent given the image. Where slices
were chosen because some rater marked them, they are not quite so, and an answer that knows it can score less.
"""

import numpy as np


def ged_limit(D: np.ndarray, R: np.ndarray, n: int | None = None) -> np.ndarray:
    """D (1/R + 1/n), or D / R for n None: the unbiased GED, or a set that is chosen and not drawn.

    D is the mean distance of two different raters of a case (`Pairs.d_raters`), R their number.
    """
    return D * (1 / R + (0 if n is None else 1 / n))

"""A model on a split: samples, metrics, intervals and tables, with reference points from the raters' own masks."""

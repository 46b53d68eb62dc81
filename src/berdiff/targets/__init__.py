"""The structures that are segmented at once, and how they may lie to each other."""

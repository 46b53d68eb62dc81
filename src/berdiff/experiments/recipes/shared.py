"""What recipes have in common."""

from berdiff.training.config import EngineConfig

# two processes of one thread: on two cores faster than two threads, which wait for each other in every layer
TWO_CORES = EngineConfig(accelerator="cpu", devices="2", threads=1)

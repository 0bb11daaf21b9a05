"""hpcq: network test campaigns on HPC clusters through their batch systems."""

__version__ = "1.0.0"

"""Kernels that are somebody else's programs, described in files: their commands, and how their output is read."""

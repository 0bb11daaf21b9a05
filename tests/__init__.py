"""Tests, in one folder per area. What several areas share stands with the area that it is about."""

from pathlib import Path

#: The checkout that holds these tests.
REPOSITORY = Path(__file__).resolve().parents[1]

"""Conditions of rules on one end, by the place where it counts."""

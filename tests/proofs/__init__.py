"""Proofs: every claim of an issue measured on real parts, as rows of ``claim | figure | bound | ok``."""

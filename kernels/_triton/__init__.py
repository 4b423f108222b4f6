"""Triton device functions that families share."""

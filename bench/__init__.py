"""Measurements. Each module is a command that prints what it measured and on what machine."""

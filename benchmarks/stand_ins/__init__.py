"""Servers that stand for what is outside the machine, with its faults on purpose."""

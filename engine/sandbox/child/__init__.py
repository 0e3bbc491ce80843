"""The sandbox's child process: one tenant, one compiled component, no way out.

Started with this package's parent folder as its path, so it imports nothing else of the engine.
"""

CONFIG = "epoch_interruption"  # what guests.engine sets: part of the compiled component's name

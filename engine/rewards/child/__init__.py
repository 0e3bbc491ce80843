"""What runs in the processes of `workers.py`; never imported by the rest of the engine.

`main.py` is started by its path, so that a child loads these few files and no other part of ours.
"""

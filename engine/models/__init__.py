"""Base models: loading, devices, shapes, chat templates, and the demo model.

`chat` and `shapes` never import torch: the web process and the planner's workers use them.
"""

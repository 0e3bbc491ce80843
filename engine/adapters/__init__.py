"""LoRA adapters: PEFT-format files, digests, initial weights, and layers that apply them.

`files`, `digest` and `initial` never import torch; `stack` (many adapters at once, for rollout) and
`linear` (one at a time, for training) do.
"""

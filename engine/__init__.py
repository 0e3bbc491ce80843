"""The RL engine: planning, multi-LoRA rollout, environments, rewards and training.

Imports neither Django nor Celery nor Redis; a person can use it from a notebook.

Axes in names and docstrings: B sequences, T tokens, V vocabulary, P prompts, G trajectories of a
prompt, R rank, S adapter slots, H hidden size, L layers. Ragged lists may carry them in the name
(`rewards_P_G`).
"""

"""How fast, how exact and how lean the rollout engine is, beside vLLM on the same machine.

Each engine runs in a process of its own (`process`, `serve`); all others are stopped meanwhile.
`sections` measure, `figures` turn measurements into rows; docs/benchmarks.md explains each row.
"""

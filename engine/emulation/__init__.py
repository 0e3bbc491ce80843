"""A rollout engine, a trainer and tools that only take the time that a script says.

They stand where the real ones stand, in the same processes, so that what remains is what
orchestration itself costs: queues, rows, joins, payloads, commits. Nothing is generated and nothing
is trained; only benchmarks and tests use them.
"""

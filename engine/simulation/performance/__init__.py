"""The planner's schedules in virtual time: how much is done by when, on which hardware.

`run` a workload on a cost model under a policy, read `metrics` off it, and compare with `bounds`.
Nothing fails here; `engine.simulation` itself is about faults.
"""

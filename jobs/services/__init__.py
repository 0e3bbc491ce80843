"""Verbs, and the only code that writes state.

A change of status is one conditional UPDATE ("where status is still X"): one row changed means we
won. Its event row stands in the same transaction; the doorbell rings on commit.
"""

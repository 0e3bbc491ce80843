"""What one machine can do with one base model: a report of checks, each with its figures and bars.

Uses an engine through its protocol only, and compares it with transformers + PEFT and with the
trainer. Knows nothing of rows, queues or other machines.
"""

"""Benchmarks that anyone can run; each prints a table for people and ends with one JSON line."""

"""Loops in C for what torch does in many small operations. Built on first use, never needed."""

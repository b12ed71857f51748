"""The rules: each looks at a run's state and has one thing to say, or nothing.

The table decides what follows.
"""

"""What is measured on a metric stream.

Constant work per value, bounded memory, no I/O, clock or randomness.
"""

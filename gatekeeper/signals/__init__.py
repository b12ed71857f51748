"""What is measured on a metric stream: constant work per value, bounded memory, no I/O, clock or randomness."""

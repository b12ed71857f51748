"""Small models trained offline with seeded faults, and a scoreboard of what notices them."""

"""What the backends on array libraries share: their ops, in the words that each backend's `library` module spells."""

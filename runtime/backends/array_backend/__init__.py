"""Ops shared by the backends on array libraries, in the words that each backend's `library` module spells."""

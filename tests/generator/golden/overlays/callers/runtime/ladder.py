"""A ladder."""

steps = 12

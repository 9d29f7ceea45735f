"""The documentation's site: its pages besides those of docs/, and the settings of Sphinx."""

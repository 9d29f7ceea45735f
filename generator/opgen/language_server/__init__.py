"""The language server of specs: what editors ask of a project, answered from its files and unsaved texts."""

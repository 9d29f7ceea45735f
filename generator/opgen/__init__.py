"""opgen: generates a multi-backend tensor package from YAML op specs.

The stages, a module each: `loader` (YAML with lines), `model` (frozen classes), `check` (what holds between files),
`plan` (the manifest of outputs), `views` (what templates see), `render` (path to text) and `write` (the tree on disk).
"""

__version__ = "0.1.0"

"""The commands, a module each; `cli` registers them."""

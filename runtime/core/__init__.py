"""The base of all modules: errors, shapes, layouts, and conversion of arguments."""

"""What facts stand on: errors, enums whose values are names, and bounded caches."""

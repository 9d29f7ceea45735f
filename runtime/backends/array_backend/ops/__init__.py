"""The ops of the array family. Each is one for all libraries; `Operand.library` is what does the work."""

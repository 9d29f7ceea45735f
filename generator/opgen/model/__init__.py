"""Stage 2: the spec as frozen classes, each of which checks what one file says by itself."""

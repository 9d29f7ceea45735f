"""What all backends on GPUs share. A backend hands its driver and its libraries to it; no vendor's package is named."""

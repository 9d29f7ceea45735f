"""Times training steps of tallow beside PyTorch: a decoder of GPT-2's size, and a small perceptron."""

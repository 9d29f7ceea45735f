"""Methods of tensors for neural networks: convolution, attention, normalisation and losses."""

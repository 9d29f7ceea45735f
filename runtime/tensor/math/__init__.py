"""Methods of tensors that compute: operators, comparisons, reductions, products, random numbers."""

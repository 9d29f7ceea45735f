"""Methods of tensors about shape and position: views, indexing, assignment, joining and rearranging."""

"""Every cell of the support matrix, called and compared with an oracle written by hand."""

"""Published numbers of arXiv 2601.17257 as plain data, with our reading of them."""

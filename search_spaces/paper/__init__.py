"""What arXiv 2601.17257 reports, as plain data: the paper's numbers, and our reading of them."""

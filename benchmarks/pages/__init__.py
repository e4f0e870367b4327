"""Pages of findings, whose numbers are made from the files of results."""

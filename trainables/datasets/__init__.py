"""Data sets: one file per format on disk, plus the small built-in one.

A video data set is one function from a ``DataConfig`` to a ``RawVideo``: which clips there are, how
each is decoded, and what its files looked like. ``video/load.py`` decodes each once per machine
into a memory-mapped cache and hands out ``VideoClips``. A text data set is one function from a
``DataConfig`` to a ``RawText``; ``text/load.py`` hands out ``TextSplits``, and ``tokenized.py``
makes their tokens once per machine and tokenizer.

To add one, write that function and its ``DataSetSpec`` in a file of its own and name it in
``registry/built_in.py``.
"""

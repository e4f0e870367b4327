"""Data sets: one file per format on disk, plus the small built-in one.

A video data set is one function from a ``DataConfig`` to a ``RawVideo``: which clips there are, how
each is decoded, and what its files looked like. ``video.py`` lists the data sets by name, decodes
each once per machine into a memory-mapped cache and hands out ``VideoClips``. To add one, write
that function in a file of its own and name it in ``video.py``.

A text data set is one function from a ``DataConfig`` to a ``RawText``, named in ``text.py``, which
hands out ``TextSplits``; ``tokenized.py`` makes their tokens once per machine and tokenizer.
"""

"""Check that no other installed package brings folders of this package's names.

Another package on PyPI is called sweep and has a folder ``sweep``, too: of two that are installed,
the later one silently replaces files of the other, and removing either removes both.
"""

from __future__ import annotations

import importlib.metadata

from sweep.doctor.check import Check
from trainables.code_version import DISTRIBUTION

OWN_FOLDERS = ("sweep", "search_spaces", "trainables", "trainables_testing")


def check_own_files(reinstall_advice: str) -> Check:
    """Check that the folders of this package are claimed by no other distribution."""
    distributions = importlib.metadata.packages_distributions()
    claims = {
        (name, folder)
        for folder in OWN_FOLDERS
        for name in distributions.get(folder, ())
        if name.lower().replace("_", "-") != DISTRIBUTION
    }
    if not claims:
        return Check("own files", True, "no other package has folders of these names")
    others, folders = (sorted(set(names)) for names in zip(*claims, strict=True))
    return Check(
        "own files",
        False,
        f"{', '.join(others)} is installed too, with a folder {', '.join(folders)}",
        f"`pip uninstall {' '.join(others)}`, or use an environment for each. Then: "
        f"{reinstall_advice}",
    )

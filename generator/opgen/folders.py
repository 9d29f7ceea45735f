"""Where the files of a project are."""

from pathlib import Path

PACKAGE_FILE = Path("spec", "package.yaml")
FOLDERS = ("spec", "templates", "runtime")
"""Those on whose files what is emitted depends."""
OUTPUT = "generated"


def root_above(folder: Path) -> Path | None:
    """The project that a folder is in."""
    return next((each for each in (folder, *folder.parents) if (each / PACKAGE_FILE).is_file()), None)

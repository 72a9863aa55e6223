"""A small tree of files in which a check is to find something."""

import subprocess
import sys


def run_check(script, root, files):
    """Writes {path: text} below root and runs the check there; returns the finished process."""
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return subprocess.run([sys.executable, str(script), "--root", str(root)],
                          capture_output=True, text=True)

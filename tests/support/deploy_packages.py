"""Makes the packages of .venv-deploy importable, which `tools/setup --deploy` installs."""

import os
import sys

import pytest
from support.lathe_server import ROOT

VENV = ROOT / ".venv-deploy"
PROGRAMS = VENV / "bin"


def packages_folder():
    return next(VENV.glob("lib/python*/site-packages"), VENV)


# Behind the others, so that both environments have the same pytest.
sys.path.append(str(packages_folder()))

# Tests that take minutes.
slow_deploy = pytest.mark.skipif(os.environ.get("LATHE_DEPLOY_FULL") != "1", reason="tools/check deploy runs it")

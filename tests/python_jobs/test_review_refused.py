import subprocess

import pytest

from python_common.errors import UserError
from python_dbt.project import Project
from python_jobs.review import review


@pytest.mark.parametrize("is_repository", [True, False])
def test_an_unknown_base_is_refused_before_anything_is_compiled(is_repository, offline_settings, tmp_path, monkeypatch):
    # No repository above the directory counts.
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    if is_repository:
        subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    with pytest.raises(UserError, match=r"git merge-base failed .*Give a branch, tag or commit that git knows"):
        review(offline_settings, Project(tmp_path, {}), "no-such-branch", 4, is_static=True)
    assert [path.name for path in tmp_path.iterdir() if path.name != ".git"] == []

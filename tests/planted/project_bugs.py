"""The planted bugs of new projects, and of what a run says at its end."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["PROJECT_BUGS"]

_NEW = "tests/projects/test_new.py"
_DEPLOYMENT = "tests/projects/test_deployment.py"
_RUN = "tests/cli/test_run.py"

PROJECT_BUGS = [
    Bug(
        "a hidden file does not count as something",
        "a project is made in a folder of git, over what is there",
        "cli/new.py",
        "any(folder.iterdir())",
        'any(folder.glob("[!.]*"))',
        (f"{_NEW}::test_folder_that_is_in_use",),
    ),
    Bug(
        "the file of the secrets has the rights of the others",
        "everybody on the machine reads the signing key",
        "cli/new.py",
        '0o600 if place.name == ".env" else 0o666',
        "0o666",
        (f"{_NEW}::test_secrets_of_a_project",),
    ),
    Bug(
        "a condition ends all that are open",
        "a job of files has the pod of another template besides",
        "cli/project.py",
        "            chosen.pop()\n",
        "            chosen = [True]\n",
        (f"{_DEPLOYMENT}::test_manifest_has_the_official_schema",),
    ),
    Bug(
        "a policy is proposed for whatever failed",
        "the setting is refused",
        "cli/narrator.py",
        'if not any(getattr(it, "on_error", None) is not None for it in nodes) or not',
        "if not",
        (f"{_RUN}::test_policy_is_proposed_where_one_can_be",),
    ),
]

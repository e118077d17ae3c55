"""The planted bugs of new projects and of the messages at the end of a run."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["PROJECT_BUGS"]

_NEW = "tests/projects/test_new.py"
_DEPLOYMENT = "tests/projects/test_deployment.py"
_RUN = "tests/cli/test_run.py"

PROJECT_BUGS = [
    Bug(
        "a folder with only hidden files counts as empty",
        "hidden files are not part of the project",
        "cli/commands/new.py",
        "any(folder.iterdir())",
        'any(folder.glob("[!.]*"))',
        (f"{_NEW}::test_folder_that_is_in_use",),
    ),
    Bug(
        "the file with the secrets has the default permissions",
        "nobody else uses the machine",
        "cli/commands/new.py",
        '0o600 if place.name == ".env" else 0o666',
        "0o666",
        (f"{_NEW}::test_secrets_of_a_project",),
    ),
    Bug(
        "the end of a condition ends the outer ones, too",
        "conditions are not nested",
        "cli/commands/new.py",
        "            chosen.pop()\n",
        "            chosen = [True]\n",
        (f"{_DEPLOYMENT}::test_manifest_has_the_official_schema",),
    ),
    Bug(
        "a policy is proposed even where none is possible",
        "every operator takes a policy",
        "cli/output/narrator.py",
        'if not any(getattr(it, "on_error", None) is not None for it in nodes) or not',
        "if not",
        (f"{_RUN}::test_policy_is_proposed_where_one_can_be",),
    ),
]

"""The planted bugs of configuration: layers, places, secrets, pinned options, and URLs of operators."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["CONFIG_BUGS"]

_LAYERS = "tests/config/test_layers.py"
_MODEL = f"{_LAYERS}::test_values_and_places_are_those_of_the_model"
_SECRETS = "tests/config/test_secrets.py"
_FILES = "tests/config/test_files.py"
_RUNTIMES = "tests/config/test_runtimes.py"
_COMMANDS = "tests/cli/test_config.py"
_BAD = "tests/config/test_bad_input.py"

CONFIG_BUGS = [
    Bug(
        "the environment hides overrides",
        "an order that is written twice",
        "config/entries.py",
        '("default", "code", "file", "profile", "environment", "override")',
        '("default", "code", "file", "profile", "override", "environment")',
        (_MODEL,),
    ),
    Bug(
        "a value stays beside the table that replaces it",
        "tables merge",
        "config/entries.py",
        "                    del stacks[other]\n",
        "                    pass\n",
        (_LAYERS,),
    ),
    Bug(
        "a setting of a profile has the line of the file",
        "the same key is written twice",
        "config/files.py",
        '*(() if profile is None else ("profile", profile)), *key)]',
        "*key)]",
        (f"{_LAYERS}::test_a_hidden_value_is_shown_with_its_place",),
    ),
    Bug(
        "a key in a text of several lines has a line of its own",
        "lines are searched for keys",
        "config/files.py",
        '    r\'"""(?:[^"\\\\]|\\\\.|"(?!""))*"{3,5}\'\n    r"|',
        '    r"',
        (f"{_FILES}::test_lines_of_keys_in_a_hard_file",),
    ),
    Bug(
        "a file of another user configures the runs below its folder",
        "the nearest upwards",
        "config/files.py",
        "if folder != start and file.stat().st_uid not in owners:",
        "if False:",
        (f"{_FILES}::test_a_file_of_another_user_in_a_folder_above_is_left_alone",),
    ),
    Bug(
        "values of variables are expanded again",
        "expanding until nothing changes",
        "store/references.py",
        "    return Secret.of(_REFERENCE.sub(value, text), tuple(secrets))",
        "    return Secret.of(_REFERENCE.sub(value, _REFERENCE.sub(value, text)), tuple(secrets))",
        (f"{_SECRETS}::test_variables_in_a_file",),
    ),
    Bug(
        "a secret within a list is shown",
        "a list has no name",
        "config/secrets.py",
        "    if path and is_secret(path):\n        return HIDDEN\n    if isinstance(value, str):",
        "    if path and is_secret(path) and not isinstance(value, list | tuple):\n        return HIDDEN\n"
        "    if isinstance(value, list):\n        return repr(value)\n    if isinstance(value, str):",
        (f"{_SECRETS}::test_nothing_shows_a_secret",),
    ),
    Bug(
        "a secret from a variable is shown where the setting is not one",
        "secrets are known by their settings",
        "store/references.py",
        "        if is_secret_name(name):\n            secrets.append(given)\n",
        "",
        (f"{_SECRETS}::test_nothing_shows_a_secret",),
    ),
    Bug(
        "the words of a constructor show a secret",
        "its messages are ours",
        "config/loading.py",
        "    return redacted(error.reason, secrets)",
        "    return f'{error.reason} {entry.value}'",
        (f"{_SECRETS}::test_no_fault_shows_a_secret",),
    ),
    Bug(
        "profiles that are not chosen are not looked at",
        "they are for another machine",
        "config/loading.py",
        "            _layer(file, name, _written(tables), env, faults)\n",
        "            pass\n",
        (f"{_BAD}::test_profiles_that_are_not_chosen_are_checked_without_their_variables",),
    ),
    Bug(
        "a pinned persistence can be given other options",
        "only its own name is pinned",
        "config/settings.py",
        '            paths += [("run", "job"), ("persistence",)]\n',
        '            paths += [("run", "job")]\n',
        (f"{_RUNTIMES}::test_a_pinned_option_names_both_places",),
    ),
    Bug(
        "a store with another option loses the rest of the code's",
        "a backend is made of the settings",
        "config/settings.py",
        "        return persistence.replaced(**stored)\n",
        '        return FsspecBackend(**{"url": persistence.arguments["url"], **stored})\n',
        (f"{_RUNTIMES}::test_settings_lie_over_the_options_of_the_code",),
    ),
    Bug(
        "one thread's worker becomes Spark's only one",
        "options are carried over",
        "config/settings.py",
        '        del given["parallelism"]\n',
        "        pass\n",
        (f"{_RUNTIMES}::test_a_script_moves_to_another_runtime",),
    ),
    Bug(
        "a connector gets the options of another",
        "arguments of the code remain",
        "connectors/by_name.py",
        "        if made._name == self._name:\n",
        "        if True:\n",
        (f"{_RUNTIMES}::test_options_of_another_connector_do_not_apply",),
    ),
    Bug(
        "a URL for an operator that the program lacks does nothing",
        "it is looked up by name",
        "streams/configured.py",
        "        faults = [*self._check(dict.fromkeys(node.name for node in nodes), outside), *graph.misconfigured]\n",
        "        faults = [*graph.misconfigured]\n",
        (f"{_RUNTIMES}::test_operators_that_can_not_be_configured_so",),
    ),
    Bug(
        "a URL for a source that the code makes itself does nothing",
        "its fault waits for the others",
        "streams/configured.py",
        "outside), *graph.misconfigured]",
        "outside)]",
        (f"{_COMMANDS}::test_all_faults_of_a_flow_at_once",),
    ),
    Bug(
        "a job that is named on the command line, without a store, has no effect",
        "a file may name one",
        "config/settings.py",
        ' or job[-1].origin.layer == "override"',
        "",
        (f"{_COMMANDS}::test_fault_that_only_the_flow_shows",),
    ),
    Bug(
        "a command reads the configuration of this folder",
        "scripts are often here",
        "cli/running/configuration.py",
        "target.file.resolve().parent",
        "Path()",
        (f"{_COMMANDS}::test_run_has_what_config_shows",),
    ),
    Bug(
        "an option that nobody typed hides the file",
        "it has a value: its default",
        "cli/running/configuration.py",
        " or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE",
        "",
        (f"{_COMMANDS}::test_run_has_what_config_shows",),
    ),
    Bug(
        "a setting that is given twice has one of the values",
        "the last one wins",
        "cli/running/configuration.py",
        '        if key in found:\n            raise click.UsageError(f"--{name} and',
        '        if False:\n            raise click.UsageError(f"--{name} and',
        (f"{_COMMANDS}::test_option_of_a_command_hides_all_others",),
    ),
    Bug(
        "a wrong configuration is an error without a code of its own",
        "it is a ValueError",
        "cli/output/exits.py",
        "    (ConfigError, Exit.CONFIGURATION),\n",
        "",
        (f"{_COMMANDS}::test_fault_ends_each_command_before_the_script_runs",),
    ),
    Bug(
        "the settings that are shown lack those of the code",
        "a file was read",
        "cli/commands/config.py",
        "shown(with_defaults(settings, runtime, name).over(runtime))",
        "shown(with_defaults(settings, runtime, name))",
        (f"{_COMMANDS}::test_code_is_shown_with_its_place",),
    ),
    Bug(
        "a check ends at the options, and never looks for the operators",
        "the first error is raised",
        "cli/commands/config.py",
        "            found += error.faults\n",
        "            return [*error.faults]\n",
        (f"{_COMMANDS}::test_all_faults_of_a_flow_at_once",),
    ),
]

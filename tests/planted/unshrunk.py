"""A plugin of pytest that does not shrink failing examples, since only their existence matters."""

from __future__ import annotations

from hypothesis import Phase, settings


def pytest_configure() -> None:
    """Leave the phase out of the profile that conftest.py has loaded; its examples stay the same."""
    settings.register_profile("unshrunk", settings(), phases=[Phase.explicit, Phase.generate])
    settings.load_profile("unshrunk")

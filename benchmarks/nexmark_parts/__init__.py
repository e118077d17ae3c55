"""Nexmark in other engines."""

"""Codecs: how states become bytes and bytes become states again."""

"""The fluent API for building dataflows."""

"""Why nothing comes out of an operator."""

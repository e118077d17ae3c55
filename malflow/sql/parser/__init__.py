"""The parser: recursive descent, and precedence climbing for expressions."""

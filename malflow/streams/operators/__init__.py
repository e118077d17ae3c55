"""The methods of streams that add operators, by subject."""

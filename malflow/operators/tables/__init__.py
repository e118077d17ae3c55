"""Tables: the last row of each key, their changes, and joins with them."""

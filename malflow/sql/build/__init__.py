"""Building: relations become operators, through the public methods of streams."""

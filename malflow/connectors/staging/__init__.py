"""Files that become visible as a whole with the snapshot that covers them, on local disk and on object stores."""

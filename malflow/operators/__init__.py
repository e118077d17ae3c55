"""The operators, which process batches, one subject a module; `contract` has their common base."""

"""The operators, which process batches; `contract` has their common base."""

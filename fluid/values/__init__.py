"""Values of programs: element types, shapes, tensors whose rows form sequences, sparse rows, places."""

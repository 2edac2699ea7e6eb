"""Programs run op by op: loops, branches, recurrences, arrays of tensors, and what reaches outside."""

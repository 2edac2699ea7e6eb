"""Moved to `fluid.values.place`; pickles that earlier versions wrote name it here."""

from fluid.values.place import CPUPlace, CUDAPinnedPlace, CUDAPlace

__all__ = ["CPUPlace", "CUDAPinnedPlace", "CUDAPlace"]

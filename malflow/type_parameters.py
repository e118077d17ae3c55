"""Type parameters that default to Any, for classes that users write without brackets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # type checkers provide it; at run time a parameter has no default

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
    T = TypeVar("T", default=Any)
    P = TypeVar("P", default=Any)
    S = TypeVar("S", default=Any)
    H = TypeVar("H", default=Any)
    VO = TypeVar("VO", default=Any)
    V2 = TypeVar("V2", default=Any)
    V_co = TypeVar("V_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    K, V, V2, T, P, S, H, VO = map(TypeVar, ("K", "V", "V2", "T", "P", "S", "H", "VO"))
    V_co = TypeVar("V_co", covariant=True)

__all__ = ["V2", "VO", "H", "K", "P", "S", "T", "V", "V_co"]

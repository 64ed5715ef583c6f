"""Attention patterns and ways to compute them (Child et al. 2019; Beltagy, Peters and Cohan 2020).

>>> [(one.library, one.pattern(8).count(100)) for one in CONVENTIONS[:4]]
[('repro', 772), ('repro', 880), ('Longformer (paper; transformers)', 880), ('allenai/longformer', 1628)]
"""

from repro.attention.conversions import CONVENTIONS
from repro.attention.implementations import attend, choose
from repro.attention.longformer import LongformerSelfAttention
from repro.attention.patterns import (
    BlockLocal,
    Causal,
    Columns,
    Document,
    Fixed,
    Full,
    Global,
    Keys,
    Pattern,
    Prefix,
    Rows,
    SlidingWindow,
    Strided,
)
from repro.errors import ReproError

__all__ = ["CONVENTIONS", "BlockLocal", "Causal", "Columns", "Document", "Fixed", "Full", "Global", "Keys",
           "LongformerSelfAttention", "Pattern", "Prefix", "Rows", "SlidingWindow", "Strided", "attend", "choose",
           "register"]


def __getattr__(name: str):  # transformers takes seconds to import
    if name == "register":
        try:
            from repro.attention.registration import register
        except ModuleNotFoundError as error:
            if error.name != "transformers":
                raise
            raise ReproError("register adds patterns to transformers models, but transformers is not installed. Run: "
                             "pip install 'repro[transformers]'.") from error
        return register
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

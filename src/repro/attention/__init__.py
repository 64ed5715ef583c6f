"""Who attends to whom, and ways to compute it (Child et al. 2019; Beltagy, Peters and Cohan 2020)."""

from repro.attention.implementations import attend, choose
from repro.attention.patterns import BlockLocal, Causal, Fixed, Full, Global, Pattern, SlidingWindow, Strided

__all__ = ["BlockLocal", "Causal", "Fixed", "Full", "Global", "Pattern", "SlidingWindow", "Strided", "attend",
           "choose"]

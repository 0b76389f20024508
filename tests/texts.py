"""Any text, for properties."""

from __future__ import annotations

from hypothesis import strategies as st

CHARACTERS = st.characters(exclude_categories=["Cs"])
"""What UTF-8 encodes. Hypothesis' own default asks the codec about every code point, which takes seconds in each
worker."""
ANY_TEXT = st.text(CHARACTERS)

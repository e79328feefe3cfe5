"""Removal of API keys from text of other programs."""

from __future__ import annotations

import hashlib
import re

from pydantic import SecretStr

MASK = "***"
PIECE = 6
"""Length of a run of key characters that counts as a piece of the key."""
LONGEST = 2000
"""Longest result, in characters."""
_MASKED = re.compile(r"[\w.-]*(?:\*{2,}|•{2,})[\w.*•-]*|\b(?:sk|pk|key|tml|hf|gsk|xai)-[\w-]*\.{3}[\w-]*")
"""Keys with an omitted middle as endpoints quote them: sk-pr****1234, sk-...1234."""
_HASH = re.compile(r"\b[0-9a-f]{64}\b")
"""SHA-256 of a key, which LiteLLM's database uses and its messages contain."""


def scrub(text: str, key: SecretStr | None) -> str:
    """Return the text, shortened, without the key, its pieces, its hash and any abbreviated key."""
    text = text[: LONGEST * 4]
    if key is not None and (secret := key.get_secret_value()):
        digest = hashlib.sha256(secret.encode()).hexdigest()
        text = _without_pieces(text.replace(secret, MASK).replace(digest, MASK), secret)
    return _HASH.sub(MASK, _MASKED.sub(MASK, text))[:LONGEST]


def _without_pieces(text: str, secret: str) -> str:
    """Mask every run of PIECE or more characters that also occurs in the secret."""
    pieces = {secret[start : start + PIECE] for start in range(len(secret) - PIECE + 1)}
    covered = bytearray(len(text))
    for start in range(len(text) - PIECE + 1):
        if text[start : start + PIECE] in pieces:
            covered[start : start + PIECE] = b"\1" * PIECE
    # Hidden characters become NUL, then each run of NULs becomes one mask.
    visible = "".join("\0" if hidden else letter for letter, hidden in zip(text, covered, strict=True))
    return re.sub("\0+", MASK, visible)

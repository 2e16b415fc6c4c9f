"""The digest in a file of ours: what nothing else in it could contradict is not changed unseen."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from perseus_ds.errors import PerseusError

KEY = "sha256"


def digest_of(content: Mapping[str, object]) -> str:
    """Return the digest of everything else in the file, however it is laid out.

    Cost: one more pass over the text.
    """
    rest = {key: value for key, value in content.items() if key != KEY}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def check_digest(content: Mapping[str, object]) -> None:
    """Refuse what was changed since it was written.

    Raises:
        PerseusError: the content does not match its digest, or has no digest.
    """
    if KEY not in content:
        raise PerseusError(f"has no {KEY}")
    if content[KEY] != digest_of(content):
        raise PerseusError(f"its content is not what its {KEY} was made of: it was changed since")

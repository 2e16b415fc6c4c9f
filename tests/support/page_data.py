"""What a report's page holds for its figures, read back as its script reads it."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def page_data(page: str) -> dict[str, Any]:
    """The numbers inside a page."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    content: dict[str, Any] = json.loads(found)
    return content


def unpacked(column: Mapping[str, str]) -> NDArray[Any]:
    """A column as numbers."""
    return np.frombuffer(zlib.decompress(base64.b64decode(column["packed"])), "<" + column["as"])

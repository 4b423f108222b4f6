"""Pieces of HTML in which no text can become markup, and data that no text can end."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Mapping
from html import escape
from typing import Any

from gemmgate.suite.report.rows import finite


def tag(element: str, *children: str, **attributes: object) -> str:
    """An element. Children are HTML already; attributes are escaped, `class_` is `class` and `data_x` is `data-x`.

    An attribute of True stands without a value, one of None or False is left out.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    return f"<{element}{written}>{''.join(children)}</{element}>"


def text(value: object) -> str:
    """Text as HTML."""
    return escape(str(value))


def name(value: str) -> str:
    """An identifier as HTML, which may break after its dashes and underscores."""
    return re.sub(r"([-_])(?=\w)", r"\1<wbr>", escape(value))


def packed(data: bytes) -> str:
    """Bytes as text for a script element that a page unpacks: compressed, and without a character that could end it."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii")


def packed_json(value: Any) -> str:
    """A plain value as strict JSON, packed."""
    return packed(json.dumps(finite(value), separators=(",", ":"), allow_nan=False).encode())


def label(value: object) -> str:
    """Text for a figure: plotly reads tags and entities in labels, and should find none."""
    return escape(str(value), quote=False)


def without_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that say something."""
    return {key: value for key, value in fields.items() if value not in (None, "", [], {}, ())}


def _attribute(key: str, value: object) -> str:
    written = key.removesuffix("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {written}" if value is True else f' {written}="{escape(str(value))}"'

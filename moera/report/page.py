"""The frame of a page that stands alone: style, title, body."""

import html
from pathlib import Path

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 1240px; padding: 24px;
  color: #0f172a; background: #f8fafc; }
h1 { font-size: 22px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 32px 0 12px; }
p.note { color: #64748b; margin: 0 0 16px; }
table { border-collapse: collapse; background: #fff; }
td, th { border: 1px solid #e2e8f0; padding: 6px 12px; text-align: right; }
td:first-child, th:first-child { text-align: left; }
.card { background: #fff; border: 1px solid #e2e8f0; border-radius: 8px; padding: 8px;
  min-width: 0; }
"""


def write_page(out: Path, title: str, body: str, *, style: str = "", script: str = "") -> None:
    """Write a page, whole or not at all; it needs nothing else to be looked at.

    Args:
        title: text; `body` is HTML.
    """
    shown = html.escape(title)
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{shown}</title><style>{_STYLE}{style}</style><script>{script}</script></head>"
        f"<body><h1>{shown}</h1>{body}</body></html>"
    )
    partial = out.with_suffix(".partial")
    partial.write_text(page, encoding="utf-8")
    partial.replace(out)

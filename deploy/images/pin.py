"""Write image digests into an overlay's `images:` block.

`python -m deploy.images.pin OVERLAY moera/cache=REGISTRY/moera/cache@sha256:... ...`
"""

import re
import sys
from pathlib import Path

import yaml

_PINNED = re.compile(r"^(?P<name>[^=]+)=(?P<new>[^@]+)@(?P<digest>sha256:[0-9a-f]{64})$")
_BLOCK = re.compile(r"^images:\n(?:[ \t-].*\n|\n)*", re.MULTILINE)


def pin(text: str, pins: list[str]) -> str:
    """Return a kustomization's text with these images pinned; other images stay as they are.

    Raises:
        ValueError: a pin is not name=repository@sha256:digest, or there is no `images:` block.
    """
    block = _BLOCK.search(text)
    if not block:
        raise ValueError("the kustomization has no `images:` block")
    images = {image["name"]: image for image in yaml.safe_load(block[0])["images"]}
    for item in pins:
        match = _PINNED.match(item)
        if not match:
            raise ValueError(f"{item!r} is not name=repository@sha256:<64 hex digits>")
        images[match["name"]] = {
            "name": match["name"],
            "newName": match["new"],
            "digest": match["digest"],
        }
    written = yaml.safe_dump({"images": list(images.values())}, sort_keys=False)
    lines = [line if line == "images:" else f"  {line}" for line in written.splitlines()]
    return text[: block.start()] + "\n".join(lines) + "\n" + text[block.end() :]


def main(argv: list[str]) -> int:
    """Rewrite the file; return 2 if an argument is wrong."""
    if not argv:
        print(__doc__, file=sys.stderr)
        return 2
    file = Path(argv[0]) / "kustomization.yaml"
    try:
        file.write_text(pin(file.read_text(encoding="utf-8"), argv[1:]), encoding="utf-8")
    except (OSError, ValueError) as error:
        print(f"deploy.images.pin: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

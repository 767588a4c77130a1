"""Render every overlay and check it: `python -m deploy.check [--crds FOLDER]`."""

import argparse
import sys
from pathlib import Path

from deploy.check import manifests, report, schemas


def main(argv: list[str]) -> int:
    """Print one report for each overlay; return 1 if there is any problem."""
    parser = argparse.ArgumentParser(prog="python -m deploy.check", description=__doc__)
    parser.add_argument(
        "--crds", type=Path, help="folder of CustomResourceDefinitions for the custom kinds"
    )
    options = parser.parse_args(argv)
    try:
        crds = schemas.load_crds(options.crds)
        cluster = manifests.render(manifests.NODE_POOLS)
        renders = {folder.name: manifests.render(folder) for folder in manifests.overlays()}
    except ValueError as error:
        print(f"deploy.check: {error}", file=sys.stderr)
        return 1
    pools = report.node_pools(cluster)
    reports = [report.check_run(name, items, crds, pools) for name, items in renders.items()]
    reports.append(report.check_cluster("node pools", cluster, crds))
    print("\n".join(report.show(item) for item in reports))
    problems = report.collisions(renders)
    print("\n".join(f"PROBLEM {text}" for text in problems), end="\n" if problems else "")
    total = len(problems) + sum(len(item.problems) for item in reports)
    print(f"{total} problems" if total else "no problems")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

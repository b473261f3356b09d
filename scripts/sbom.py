#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print an SPDX 2.3 bill of materials of the static program.

    sbom.py VERSION SECONDS

Debian's packages are what is linked into it; their versions are those of this
machine, SECONDS is the time of the commit."""
import json
import subprocess
import sys
import time

LINKED = {  # package -> license
    "libc6-dev": "LGPL-2.1-or-later",
    "libfuse3-dev": "LGPL-2.1-only",
    "zlib1g-dev": "Zlib",
    "libzstd-dev": "BSD-3-Clause",
    "libxxhash-dev": "BSD-2-Clause",
    "libdeflate-dev": "MIT",
}


def version_of(package):
    return subprocess.run(["dpkg-query", "-W", "-f=${Version}", package],
                          check=True, capture_output=True, text=True).stdout


def entry(name, version, license_, where):
    return {"SPDXID": "SPDXRef-" + name, "name": name, "versionInfo": version,
            "downloadLocation": where, "filesAnalyzed": False,
            "licenseConcluded": license_, "licenseDeclared": license_,
            "copyrightText": "NOASSERTION"}


def main():
    version, seconds = sys.argv[1:]
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(seconds)))
    packages = [entry("optimfs", version, "Apache-2.0", "NOASSERTION")]
    relations = [["SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-optimfs"]]
    for name, license_ in sorted(LINKED.items()):
        packages.append(entry(name, version_of(name), license_,
                              "https://packages.debian.org/" + name))
        relations.append(["SPDXRef-optimfs", "STATIC_LINK", "SPDXRef-" + name])
    json.dump({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT", "name": "optimfs-" + version,
        "documentNamespace": f"https://spdx.org/spdxdocs/optimfs-{version}-{seconds}",
        "creationInfo": {"created": when, "creators": ["Tool: scripts/sbom.py"]},
        "packages": packages,
        "relationships": [{"spdxElementId": a, "relationshipType": r,
                           "relatedSpdxElement": b} for a, r, b in relations],
    }, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()

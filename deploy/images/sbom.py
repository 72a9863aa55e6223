#!/usr/bin/env python3
"""Writes the list of contents of an image as SPDX 2.3 JSON.

    sbom.py --name lathe-control --root /image --created SECONDS --out sbom.spdx.json

Reads the packages of Debian in the image's dpkg database, and where the other files come from in
usr/share/doc/lathe/components/*.json. Fails if a file below usr/lib belongs to neither: then the
list would not be complete. Needs dpkg-query and nothing but Python's standard library.
"""

import argparse
import datetime
import hashlib
import json
import pathlib
import re
import subprocess
import sys

COMPONENTS = "usr/share/doc/lathe/components"
# Files that Debian's packages make while they are installed, for which dpkg has no line.
MADE_BY_INSTALLATION = (r"/usr/lib/locale/C\.utf8(/.*)?", r"/usr/lib/ssl/.*")


def debian_packages(root):
    """[{name, version, source, files}] of the image."""
    database = root / "var/lib/dpkg"
    told = subprocess.run(
        ["dpkg-query", f"--admindir={database}", "-W", "-f",
         "${Package}\t${Architecture}\t${Version}\t${source:Package}\t${source:Version}\n"],
        check=True, capture_output=True, text=True).stdout
    packages = []
    for line in told.splitlines():
        name, architecture, version, source, source_version = line.split("\t")
        packages.append({"name": name, "version": version,
                         "source": f"{source} {source_version}",
                         "purl": f"pkg:deb/debian/{name}@{version}?arch={architecture}",
                         "files": _files_of(database, name, architecture)})
    return packages


def _files_of(database, name, architecture):
    for stem in (name, f"{name}:{architecture}"):
        file = database / f"info/{stem}.list"
        if file.exists():
            return file.read_text(encoding="utf-8").splitlines()
    return []


def components(root):
    return [json.loads(file.read_text(encoding="utf-8"))
            for file in sorted((root / COMPONENTS).glob("*.json"))]


def usr_path(path):
    """Path of a file in a merged /usr: dpkg has /lib/x for /usr/lib/x."""
    return "/usr" + path if re.match(r"/(bin|sbin|lib|lib64)/", path) else path


def files_without_owner(root, packages, parts):
    owned = {usr_path(path) for package in packages for path in package["files"]}
    owned |= {path for part in parts for path in part["files"]}
    present = ("/" + str(path.relative_to(root)) for path in (root / "usr/lib").rglob("*")
               if not path.is_dir() or path.is_symlink())
    made = re.compile("|".join(MADE_BY_INSTALLATION))
    return sorted(path for path in present if path not in owned and not made.fullmatch(path))


def spdx_id(name):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def spdx_package(name, version, purl, **fields):
    return {"SPDXID": spdx_id(f"{name}-{version}"), "name": name, "versionInfo": version,
            "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
            "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION",
            "copyrightText": "NOASSERTION",
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                              "referenceLocator": purl}], **fields}


def spdx_document(name, created, packages, parts):
    listed = [spdx_package(package["name"], package["version"], package["purl"],
                           sourceInfo=f"built from {package['source']}",
                           supplier="Organization: Debian") for package in packages]
    relationships = []
    for part in parts:
        purl = part.get("purl", f"pkg:generic/{part['name']}@{part['version']}")
        listed.append(spdx_package(part["name"], part["version"], purl,
                                   licenseDeclared=part["license"]))
        for inner in part.get("contains", []):
            inner_package = spdx_package(inner["name"], inner["version"], inner["purl"])
            if all(inner_package["SPDXID"] != other["SPDXID"] for other in listed):
                listed.append(inner_package)
            relationships.append({"spdxElementId": spdx_id(f"{part['name']}-{part['version']}"),
                                  "relationshipType": "STATIC_LINK",
                                  "relatedSpdxElement": inner_package["SPDXID"]})
    relationships += [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                       "relatedSpdxElement": package["SPDXID"]} for package in listed]
    digest = hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
            "name": name, "documentNamespace": f"https://spdx.org/spdxdocs/{name}-{digest}",
            "creationInfo": {
                "created": datetime.datetime.fromtimestamp(created, datetime.timezone.utc)
                           .strftime("%Y-%m-%dT%H:%M:%SZ"),
                "creators": ["Tool: lathe-sbom.py"]},
            "packages": listed, "relationships": relationships}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--name", required=True)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--created", type=int, required=True, help="seconds since 1970")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    packages, parts = debian_packages(arguments.root), components(arguments.root)
    if strays := files_without_owner(arguments.root, packages, parts):
        sys.exit(f"sbom.py: {len(strays)} files below usr/lib belong to no package and no component, "
                 f"such as {', '.join(strays[:5])}")
    document = spdx_document(arguments.name, arguments.created, packages, parts)
    arguments.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""check-sbom.py FILE: validates a software bill of materials against CycloneDX's schema, and prints its number of components."""

import json
import pathlib
import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

text = pathlib.Path(sys.argv[1]).read_text()
version = SchemaVersion.from_version(json.loads(text)["specVersion"])
problem = JsonStrictValidator(version).validate_str(text)
if problem:
    sys.exit(f"{sys.argv[1]}: {problem}")
print(len(json.loads(text)["components"]))

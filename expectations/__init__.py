"""Defines data-quality checks in code, runs them on a lake and stores the results in gold."""

import os
import sys

# Great Expectations reads it when it is loaded.
os.environ["GX_ANALYTICS_ENABLED"] = "false"
# With it jsonschema, which Great Expectations loads, builds 38 grammars to know an IRI by: half of
# what loading costs, for a format of which nobody here has a value.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

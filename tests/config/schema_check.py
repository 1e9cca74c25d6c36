# SPDX-License-Identifier: Apache-2.0
"""Checks docs/configuration.schema.json against the example configurations with PyPI's jsonschema.

usage: schema_check.py SCHEMA EXAMPLES_DIRECTORY
"""
import json
import pathlib
import sys

import jsonschema

# What the schema has to say to each folder of examples.
EXPECTED = {"accepted": True, "unsupported": True, "contradictory": True, "malformed": False}
# An optimizer that is not built has parameters of its own, which the parser lets pass to name the optimizer.
PARSER_ALONE = {"onebit_adam.json"}


def main() -> int:
    schema = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    validator_class = jsonschema.validators.validator_for(schema)
    validator_class.check_schema(schema)
    validator = validator_class(schema)
    wrong, checked = 0, 0
    for folder, expected in EXPECTED.items():
        for path in sorted((pathlib.Path(sys.argv[2]) / folder).glob("*.json")):
            if path.name in PARSER_ALONE:
                continue
            try:
                errors = list(validator.iter_errors(json.loads(path.read_text(encoding="utf-8"))))
            except json.JSONDecodeError as error:
                errors = [error]
            checked += 1
            if (not errors) != expected:
                wrong += 1
                print(f"{folder}/{path.name}: expected valid={expected}; {errors[:1]}")
    print(f"{checked} examples, {wrong} wrong")
    return 1 if wrong or checked < 20 else 0


if __name__ == "__main__":
    sys.exit(main())

"""What the engine says, it says through two doors: `say` for its user, the log for its operator.

Both make control characters harmless; whoever printed on his own would bring them back.
"""

from __future__ import annotations

import ast

from tests.architecture.source_tree import modules, report

DOORS = {"engine/foundation/terminal.py": "echo", "engine/foundation/log_lines.py": "basicConfig"}
SPEAKING = {"print", "echo", "secho", "basicConfig", "StreamHandler", "FileHandler", "Formatter"}


def test_the_engine_speaks_through_its_doors_only() -> None:
    findings = [
        f"{module.name}:{node.lineno} {name}"
        for module in modules("engine")
        if module.name not in DOORS
        for node in module.nodes
        if isinstance(node, ast.Call)
        and (name := getattr(node.func, "attr", getattr(node.func, "id", ""))) in SPEAKING
    ]
    assert not findings, report(findings)


def test_the_doors_are_where_they_are_said_to_be() -> None:
    doors = {module.name: module.text for module in modules("engine") if module.name in DOORS}
    assert doors.keys() == DOORS.keys()
    assert all(word in doors[name] for name, word in DOORS.items())

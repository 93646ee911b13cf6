"""The engine reaches clock, randomness, sockets, files and threads only through engine/runtime.

That is what makes the simulator a proof: the same code runs on virtual time, a virtual network and
a virtual disk. One forgotten `time.time()` and the same seed is no longer the same run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.source_tree import Module, modules, report

EXEMPT = (
    "engine/runtime/",  # the door itself
    "engine/telemetry/shipper",  # a process of its own, never simulated
    "engine/foundation/config.py",  # reads settings once, before anything runs
    "engine/access_file.py",  # named by the commands, looked at while a party runs
    "engine/observe.py",  # a command, which starts shippers as those of the room's top do
    "engine/foreground.py",  # signals and child processes of the commands
)
ENTRY_POINT = "/commands.py"

FORBIDDEN_MODULES = {
    "concurrent": "threads: runtime.disk.off_loop",
    "fcntl": "files: runtime.disk",
    "getpass": "the machine: a setting",
    "glob": "files: runtime.disk.names",
    "mmap": "files: runtime.disk",
    "multiprocessing": "processes: none in the engine",
    "os": "files and environment: runtime.disk, foundation.config",
    "pathlib": "files: runtime.disk takes paths as text",
    "platform": "the machine: a setting",
    "queue": "threads: asyncio.Queue",
    "random": "randomness: runtime.entropy",
    "secrets": "randomness: runtime.entropy",
    "select": "sockets: runtime.network",
    "selectors": "sockets: runtime.network",
    "shutil": "files: runtime.disk",
    "signal": "processes: commands.py",
    "socket": "sockets: runtime.network",
    "ssl": "sockets: runtime.network",
    "subprocess": "processes: commands.py",
    "tempfile": "files: runtime.disk",
    "threading": "threads: asyncio",
    "time": "the clock: runtime.clock, or now_ms as an argument",
    "uuid": "randomness: runtime.entropy",
}
FORBIDDEN_CALLS = {
    "open": "files: runtime.disk",
    "input": "the terminal: commands.py",
    "id": "an address differs in every run",
    "hash": "a text's hash differs by PYTHONHASHSEED",
}
FORBIDDEN_METHODS = {
    "to_thread": "threads: runtime.disk.off_loop",
    "run_in_executor": "threads: runtime.disk.off_loop",
    "open_connection": "sockets: runtime.network",
    "start_server": "sockets: runtime.network",
    "create_connection": "sockets: runtime.network",
    "create_server": "sockets: runtime.network",
    "create_subprocess_exec": "processes: commands.py",
    "create_subprocess_shell": "processes: commands.py",
    "utcnow": "the clock: runtime.clock",
    "today": "the clock: runtime.clock",
}
# Of a set only these are independent of its order.
ORDER_FREE = {"sorted", "min", "max", "sum", "any", "all", "len", "set", "frozenset", "bool"}


def simulated_modules() -> list[Module]:
    """The engine's modules that the simulator runs."""
    return [
        module
        for module in modules("engine")
        if not module.name.startswith(EXEMPT) and not module.name.endswith(ENTRY_POINT)
    ]


def outside_reaches(module: Module) -> Iterator[str]:
    """Each import or call by which the module would reach past engine/runtime."""
    for imported, line in module.imports():
        root = imported.split(".")[0]
        if root in FORBIDDEN_MODULES:
            yield f"{module.name}:{line} imports {imported} ({FORBIDDEN_MODULES[root]})"
    for node in module.nodes:
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in FORBIDDEN_CALLS:
            yield f"{module.name}:{node.lineno} calls {called.id} ({FORBIDDEN_CALLS[called.id]})"
        elif isinstance(called, ast.Attribute):
            if ast.unparse(called) == "io.open":
                yield f"{module.name}:{node.lineno} calls io.open (files: runtime.disk)"
            elif called.attr in FORBIDDEN_METHODS:
                why = FORBIDDEN_METHODS[called.attr]
                yield f"{module.name}:{node.lineno} calls .{called.attr} ({why})"
            elif called.attr == "now" and ast.unparse(called.value).endswith(("datetime", "date")):
                yield f"{module.name}:{node.lineno} asks datetime for the time (runtime.clock)"


def iterations_over_sets(module: Module) -> Iterator[str]:
    """Each loop whose order is that of a set, as far as names and annotations show it."""
    known_sets = set_names(module.tree)
    sheltered = {
        id(argument)
        for node in module.nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ORDER_FREE
        for argument in node.args
    }
    for node in module.nodes:
        sources: list[ast.expr] = []
        if isinstance(node, ast.For | ast.AsyncFor):
            sources = [node.iter]
        elif isinstance(node, ast.ListComp | ast.DictComp | ast.GeneratorExp):
            if id(node) not in sheltered:
                sources = [generator.iter for generator in node.generators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in {"list", "tuple", "iter", "enumerate"}:
                sources = node.args[:1]
        elif isinstance(node, ast.Starred):
            sources = [node.value]
        for source in sources:
            if is_set(source, known_sets):
                yield f"{module.name}:{source.lineno} takes the order of `{ast.unparse(source)}`"


def set_names(tree: ast.Module) -> set[str]:
    """Names and attributes that are annotated as a set or given one."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and is_set_annotation(node.annotation):
            names.add(ast.unparse(node.target))
        elif isinstance(node, ast.arg) and node.annotation and is_set_annotation(node.annotation):
            names.add(node.arg)
        elif isinstance(node, ast.Assign) and is_set(node.value, set()):
            names.update(ast.unparse(target) for target in node.targets)
    return names


def is_set_annotation(annotation: ast.expr) -> bool:
    """True for set[...], frozenset[...] and AbstractSet[...]."""
    root = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return ast.unparse(root) in {"set", "frozenset", "AbstractSet", "abc.Set"}


def is_set(value: ast.expr, known: set[str]) -> bool:
    """True for a set display, a call of set, a known name, and their algebra."""
    if isinstance(value, ast.Set | ast.SetComp):
        return True
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) in {"set", "frozenset"}
    if isinstance(value, ast.BinOp) and isinstance(
        value.op, ast.BitAnd | ast.BitOr | ast.BitXor | ast.Sub
    ):
        return is_set(value.left, known) or is_set(value.right, known)
    return isinstance(value, ast.Name | ast.Attribute) and ast.unparse(value) in known


def test_only_the_runtime_reaches_clock_files_sockets_threads_and_randomness() -> None:
    findings = [found for module in simulated_modules() for found in outside_reaches(module)]
    assert not findings, report(findings)


def test_no_loop_takes_its_order_from_a_set() -> None:
    findings = [found for module in simulated_modules() for found in iterations_over_sets(module)]
    assert not findings, report(findings)


@pytest.mark.parametrize(
    ("code", "finding"),
    [
        ("import time", "imports time"),
        ("from os import path", "imports os"),
        ("def f():\n    import random", "imports random"),
        ("data = open('x').read()", "calls open"),
        ("data = io.open('x').read()", "calls io.open"),
        ("async def f(g):\n    await asyncio.to_thread(g)", "calls .to_thread"),
        ("born = datetime.now(tz=UTC)", "asks datetime"),
        ("order = hash('a')", "calls hash"),
    ],
)
def test_the_reach_rule_sees(code: str, finding: str) -> None:
    module = Module("example.py")
    module.__dict__["tree"] = ast.parse(code)
    assert [finding in found for found in outside_reaches(module)] == [True]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("for x in {1, 2}: pass", True),
        ("held: set[int] = set()\nfor x in held: pass", True),
        ("def f(names: frozenset[str]): return [n for n in names]", True),
        ("held = set()\nfirst = list(held)", True),
        ("for x in set(a) - set(b): pass", True),
        ("held: set[int] = set()\nfor x in sorted(held): pass", False),
        ("held: set[int] = set()\nbig = any(x > 3 for x in held)", False),
        ("held: dict[int, int] = {}\nfor x in held: pass", False),
        ("held: set[int] = set()\nfree = 3 not in held", False),
    ],
)
def test_the_set_rule_sees(code: str, found: bool) -> None:
    module = Module("example.py")
    module.__dict__["tree"] = ast.parse(code)
    assert bool(list(iterations_over_sets(module))) is found

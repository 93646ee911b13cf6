"""Style that matters is a test: sizes, names, docstrings, and words that do not belong in the
project.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.source_tree import (
    PACKAGES,
    ROOT,
    Module,
    all_code,
    all_texts,
    modules,
    report,
)

# A module of more than about 400 lines is asked whether its noun ends somewhere; this is where the
# question becomes a law. A file cut into fragments for the count is worse than one good long one.
MODULE_LINES_MAX = 650
FUNCTION_LINES_MAX = 70
FIRST_LINE_MAX = 90
POSITIONAL_MAX = 4

# Module -> why it is longer than the rule. An entry whose module is short again must go.
LONG_MODULES: dict[str, str] = {}
# Module:function -> why it is longer than the rule.
LONG_FUNCTIONS: dict[str, str] = {}
# Module:function -> why its positional parameters are more than the rule.
WIDE_FUNCTIONS: dict[str, str] = {
    "engine/foundation/observing.py:pulled": "called for every pull; keywords would cost there",
    "engine/telemetry/telemetry.py:pulled": "called for every pull; keywords would cost there",
}

BANNED_NAME_PARTS = {"util", "utils", "helper", "helpers", "manager", "managers", "misc"}
BANNED_FUNCTION_NAMES = re.compile(r"^_*(do_\w+|process|handle_data)$")

BANNED_TEXTS = {
    r"\.\./shared": "a clone has no such folder",
    r"/work/(main|shared)|/root/|/tmp/work": "a path of one machine",
    r"\bissues? #\d|\bissues show\b": "the project speaks of itself alone",
    r"\bTODO\b|\bFIXME\b|\bXXX\b|\bHACK\b": "finish it",
    r"\b[Ff]or now\b|\b[Pp]laceholder\b": "finish it",
    r"\bNotImplementedError\b": "write it or leave it out",
    r"repo1?\.maven|files\.pythonhosted|pypi\.org": "registries are the user's settings",
}
BANNED_IN_TESTS = {
    r"unittest\.mock|MagicMock|monkeypatch\.setattr": "no mock of our own code",
    r"pytest\.(mark\.)?(skip|xfail)|skipif|importorskip": "a test runs or does not exist",
}
# (file, pattern) -> why the word is right there.
TEXTS_ALLOWED: dict[tuple[str, str], str] = {}


def functions(module: Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function of the module, as `file:name`."""
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{module.name}:{node.name}", node


def test_modules_fit_on_a_few_screens() -> None:
    long = {
        module.name: lines
        for module in all_code()
        if (lines := len(module.text.splitlines())) > MODULE_LINES_MAX
    }
    findings = [
        f"{name}: {lines} lines" for name, lines in long.items() if name not in LONG_MODULES
    ]
    assert not findings, report(findings)
    assert not LONG_MODULES.keys() - long.keys(), "allowed as long, but short"


def test_functions_fit_on_one_screen() -> None:
    long = {
        name: lines
        for module in all_code()
        for name, node in functions(module)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    }
    findings = [
        f"{name}: {lines} lines" for name, lines in long.items() if name not in LONG_FUNCTIONS
    ]
    assert not findings, report(findings)
    assert not LONG_FUNCTIONS.keys() - long.keys(), "allowed as long, but short"


def test_functions_take_few_positional_parameters() -> None:
    wide = {}
    for module in [*modules(*PACKAGES, "provision", "bench"), Module("tidemark.py")]:
        for name, node in functions(module):
            positional = [parameter.arg for parameter in node.args.posonlyargs + node.args.args]
            named = [parameter for parameter in positional if parameter not in {"self", "cls"}]
            if len(named) > POSITIONAL_MAX and not is_command(node):
                wide[name] = len(named)
    findings = [
        f"{name}: {count} positional parameters"
        for name, count in wide.items()
        if name not in WIDE_FUNCTIONS
    ]
    assert not findings, report(findings)
    assert not WIDE_FUNCTIONS.keys() - wide.keys(), "allowed as wide, but narrow"


def is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A command's parameters are options of the command line, and a callback's its Inputs."""
    return any(
        "command" in (text := ast.unparse(decorator)) or "callback" in text
        for decorator in node.decorator_list
    )


def test_names_say_what_a_thing_is() -> None:
    findings = []
    for module in all_code():
        if BANNED_NAME_PARTS & set(re.split(r"[/_.]", module.name)):
            findings.append(f"{module.name}: file name")
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                parts = {part.lower() for part in re.findall(r"[A-Z][a-z]*", node.name)}
                if BANNED_NAME_PARTS & parts:
                    findings.append(f"{module.name}:{node.lineno} class {node.name}")
        for name, function in functions(module):
            banned = BANNED_FUNCTION_NAMES.match(function.name)
            if banned or BANNED_NAME_PARTS & set(function.name.split("_")):
                findings.append(f"{name} (line {function.lineno})")
    assert not findings, report(findings)


def test_every_module_says_what_it_is_for() -> None:
    findings = [
        module.name
        for module in all_code()
        if module.text and not ast.get_docstring(module.tree)  # an __init__ may be empty
    ]
    assert not findings, report(findings)


def test_the_first_line_of_a_module_stands_alone() -> None:
    """It is what a reader of many files sees: short, and not broken off in mid-sentence."""
    found = []
    for module in modules(*PACKAGES, "provision", "bench"):
        first = (ast.get_docstring(module.tree) or ".").split("\n")[0]
        if len(first) > FIRST_LINE_MAX or first[-1] not in ".:":
            found.append(f"{module.name}: {first}")
    assert not found, report(found)


def test_public_classes_and_functions_say_what_they_mean() -> None:
    findings = []
    for module in [*modules(*PACKAGES, "provision", "bench"), Module("tidemark.py")]:
        findings += [
            f"{module.name}:{node.lineno} {node.name}"
            for node in module.tree.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and not node.name.startswith("_")
            and not ast.get_docstring(node)
        ]
    assert not findings, report(findings)


def test_nothing_runs_text_as_code_or_trusts_pickled_bytes() -> None:
    findings = []
    for module in all_code():
        findings += [
            f"{module.name}:{line} imports {imported}"
            for imported, line in module.imports()
            if imported.split(".")[0] in {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
        ]
        for node in module.nodes:
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Name) and node.func.id in {"eval", "exec"}:
                    findings.append(f"{module.name}:{node.lineno} calls {node.func.id}")
                if any(
                    keyword.arg == "shell" and ast.unparse(keyword.value) != "False"
                    for keyword in node.keywords
                ):
                    findings.append(f"{module.name}:{node.lineno} passes shell=")
    assert not findings, report(findings)


@pytest.mark.parametrize("pattern", BANNED_TEXTS)
def test_no_file_contains(pattern: str) -> None:
    findings = []
    for path in all_texts():
        name = str(path.relative_to(ROOT))
        if (name, pattern) in TEXTS_ALLOWED:
            continue
        text = path.read_text(encoding="utf-8")
        for found in re.finditer(pattern, text):
            number = text.count("\n", 0, found.start()) + 1
            findings.append(f"{name}:{number} {found[0]!r}: {BANNED_TEXTS[pattern]}")
    assert not findings, report(findings)


@pytest.mark.parametrize("pattern", BANNED_IN_TESTS)
def test_no_test_contains(pattern: str) -> None:
    findings = [
        f"{module.name}:{number} {found[0]!r}: {BANNED_IN_TESTS[pattern]}"
        for module in modules("tests")
        if not module.name.startswith("tests/architecture/")
        for number, line in enumerate(module.text.splitlines(), start=1)
        if (found := re.search(pattern, line))
    ]
    assert not findings, report(findings)


def test_the_lock_names_only_the_default_package_index() -> None:
    hosts = set(re.findall(r"https?://([^/\"]+)", (ROOT / "uv.lock").read_text(encoding="utf-8")))
    assert hosts == {"pypi.org", "files.pythonhosted.org"}


def test_each_test_file_has_a_name_of_its_own() -> None:
    names = [
        module.path.name for module in modules("tests") if module.path.name.startswith("test_")
    ]
    twice = sorted({name for name in names if names.count(name) > 1})
    assert not twice, f"the same base name in two folders: {twice}"


def test_a_test_that_needs_a_loop_is_async_itself() -> None:
    """Not a closure that it runs: see tests/asynchronous.py."""
    findings = []
    for module in modules("tests"):
        for name, function in functions(module):
            inner = {
                node.name
                for node in ast.walk(function)
                if isinstance(node, ast.AsyncFunctionDef) and node is not function
            }
            if "story" in inner:
                findings.append(f"{name}: a story inside a function")
            if function.name.startswith("test_"):
                findings += [
                    f"{name} (line {call.lineno}): {ast.unparse(call)}"
                    for call in ast.walk(function)
                    if isinstance(call, ast.Call) and runs_one_of(call, inner)
                ]
    assert not findings, report(findings)


def runs_one_of(call: ast.Call, names: set[str]) -> bool:
    """Is it `asyncio.run(name(...))`?"""
    match call:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="asyncio"), attr="run"),
            args=[ast.Call(func=ast.Name(id=name)), *_],
        ):
            return name in names
    return False


def test_who_catches_everything_raises_it_again_or_says_why_not() -> None:
    """The reason stands on the line of the `except`."""
    findings = []
    for module in all_code():
        lines = module.text.splitlines()
        findings += [
            f"{module.name}:{node.lineno} {lines[node.lineno - 1].strip()}"
            for node in module.nodes
            if isinstance(node, ast.ExceptHandler)
            and (node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"})
            and not isinstance(node.body[-1], ast.Raise)
            and not re.search(r"#.*[a-z]{2,} [a-z]{2,}", lines[node.lineno - 1])
        ]
    assert not findings, report(findings)

"""Functions, values, types and whole modules as sections of a reference page."""

import ast
import inspect
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import resolve_name
from types import ModuleType
from typing import Any, Final, is_typeddict

from docs.docstrings import doc_of, line_of, text_of, tree_of

_WIDTH: Final = 100
_CODE: Final = "```text\n{}\n```"
_COMMENT: Final = re.compile(r"  # .*$", re.MULTILINE)


# Functions


def describe_function(function: Any, name: str, *, level: int = 3, is_method: bool = False) -> Iterator[str]:
    """A heading, the signature as it is written in the source, and the docstring."""
    yield f"{'#' * level} `{name}`"
    yield _CODE.format(signature_of(function, name, is_method=is_method))
    yield text_of(doc_of(function))


def describe_property(name: str, member: property, *, level: int) -> Iterator[str]:
    """A heading, the type, and the docstring."""
    yield f"{'#' * level} `{name}`"
    yield _CODE.format(f"{name}: {type_of(member)}")
    yield text_of(doc_of(member))


def describe_methods(kind: type, *, level: int) -> Iterator[str]:
    """The public methods and properties that a class itself defines, without those that its base describes."""
    for name, member in vars(kind).items():
        if name.startswith("_") or (inspect.getdoc(member) or "").startswith("As declared in"):
            continue
        if isinstance(member, property):
            yield from describe_property(name, member, level=level)
            continue
        function: Any = getattr(member, "__func__", member)
        if inspect.isfunction(function) and function.__qualname__ == f"{kind.__name__}.{name}":
            yield from describe_function(function, name, level=level, is_method=not isinstance(member, staticmethod))


def type_of(member: property) -> str:
    """The type of a property, as it is written in the source."""
    node = tree_of(member.fget)
    assert isinstance(node, ast.FunctionDef), "a property is a function"
    assert node.returns is not None, "every function is typed"
    return _annotation(node.returns)


def signature_of(function: Any, name: str, *, is_method: bool, is_awaited: bool = True) -> str:
    """As it is written in the source, one argument a line when it is long; with `async` if it has that and is awaited."""
    node = tree_of(function)
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef), "signatures belong to functions"
    arguments = node.args
    parts = _positional(arguments)[1 if is_method else 0 :]
    if arguments.vararg is not None:
        parts.append(f"*{_argument(arguments.vararg, None)}")
    if arguments.kwonlyargs:
        parts += [] if arguments.vararg is not None else ["*"]
        parts += [
            _argument(argument, default)
            for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        ]
    if arguments.kwarg is not None:
        parts.append(f"**{_argument(arguments.kwarg, None)}")
    returns = "" if node.returns is None or node.name == "__init__" else f" -> {_annotation(node.returns)}"
    is_async = isinstance(node, ast.AsyncFunctionDef) or inspect.iscoroutinefunction(function)
    prefix = "async " if is_awaited and is_async else ""
    line = f"{prefix}{name}({', '.join(parts)}){returns}"
    if len(line) <= _WIDTH:
        return line
    return f"{prefix}{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"


def _positional(arguments: ast.arguments) -> list[str]:
    defaults: list[ast.expr | None] = [None] * (len(arguments.args) - len(arguments.defaults)) + [*arguments.defaults]
    return [_argument(argument, default) for argument, default in zip(arguments.args, defaults, strict=True)]


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    kind = "" if argument.annotation is None else f": {_annotation(argument.annotation)}"
    if default is None:
        return argument.arg + kind
    is_private = isinstance(default, ast.Name) and default.id.startswith("_")
    return f"{argument.arg}{kind} = {'...' if is_private else ast.unparse(default)}"


def _annotation(node: ast.expr) -> str:
    """A type as it is written, without the quotes that some need in the source."""
    return _quoted(node) or ast.unparse(node)


# Types


def describe_values(kind: type) -> Iterator[str]:
    """A struct or typed dictionary: a heading, its fields, the docstring, and a list of what else it has."""
    yield f"### `{kind.__name__}`"
    yield _CODE.format("\n".join(fields_of(kind)))
    yield text_of(doc_of(kind))
    properties = [(name, member) for name, member in vars(kind).items() if isinstance(member, property)]
    methods = [
        (name, member) for name, member in vars(kind).items() if inspect.isfunction(member) and not name.startswith("_")
    ]
    listed = [f"- `{name}`: {line_of(doc_of(member))}" for name, member in properties]
    listed += [f"- `{name}()`: {line_of(doc_of(member))}" for name, member in methods]
    if listed:
        yield "\n".join(listed)


def describe_class(kind: type) -> Iterator[str]:
    """A class with behaviour: a heading, how it is made, the docstring, and its own methods."""
    yield f"### `{kind.__name__}`"
    yield _CODE.format(f"class {kind.__name__}(Protocol)" if is_protocol(kind) else constructor_of(kind))
    yield text_of(doc_of(kind))
    yield from describe_methods(kind, level=4)


def constructor_of(kind: type) -> str:
    """How an object of a class is made."""
    if hasattr(kind, "__dataclass_fields__") or hasattr(
        kind, "__struct_fields__"
    ):  # it has no source of its own for this, and its fields say the same
        return f"{kind.__name__}(*, {', '.join(fields_of(kind))})"
    own = inspect.getattr_static(kind, "__init__")
    if not inspect.isfunction(own):  # nothing is given to make it
        return f"{kind.__name__}()"
    return signature_of(own, kind.__name__, is_method=True)


def is_protocol(kind: type) -> bool:
    """Whether a class says what others must have, and is not made itself."""
    return getattr(kind, "_is_protocol", False)


def fields_of(kind: type) -> list[str]:
    """The fields as they are written in the source, those of its bases first, without comments."""
    is_partial = is_typeddict(kind) and not getattr(kind, "__total__", True)
    found: list[str] = []
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("chatledger."):
            continue
        node = tree_of(base)
        assert isinstance(node, ast.ClassDef), "fields belong to classes"
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and "ClassVar" not in ast.unparse(statement.annotation):
                default = "" if statement.value is None else f" = {ast.unparse(statement.value)}"
                annotation = _annotation(statement.annotation)
                annotation = f"NotRequired[{annotation}]" if is_partial else annotation
                found.append(f"{ast.unparse(statement.target)}: {annotation}{default}")
    return found


# Modules


def describe_module(module: ModuleType, *, elsewhere: Iterable[str] = ()) -> Iterator[str]:
    """
    List what a module exports: the functions that one line explains, then a section for each other name.

    Args:
        module: With an `__all__`.
        elsewhere: Names that are described already.
    """
    names = [name for name in module.__all__ if name not in set(elsewhere)]
    short = [name for name in names if _is_short(getattr(module, name))]
    if short:
        yield "\n".join(f"- {_in_short(getattr(module, name), name)}" for name in short)
    for name in names:
        if name not in short:
            yield from describe_member(module, name)


def describe_member(module: ModuleType, name: str) -> Iterator[str]:
    """One name that a module exports, whatever it is."""
    member = getattr(module, name)
    if inspect.isfunction(member):
        yield from describe_function(member, name)
    elif not _is_defined_by_class(member):
        yield from _describe_assigned(module, name)
    elif hasattr(member, "__struct_fields__") or is_typeddict(member):
        yield from describe_values(member)
    else:
        yield from describe_class(member)


def _is_short(member: Any) -> bool:
    """Whether one line says all: the signature is not long, and the docstring is one paragraph without sections."""
    if not inspect.isfunction(member):
        return False
    return "\n" not in signature_of(member, member.__name__, is_method=False) and "\n" not in doc_of(member)


def _in_short(function: Any, name: str) -> str:
    return f"`{signature_of(function, name, is_method=False)}`: {doc_of(function)}"


def _is_defined_by_class(member: Any) -> bool:
    """Whether a class statement of ours made it: neither another value nor a type that is put together."""
    if not inspect.isclass(member) or not member.__module__.startswith("chatledger."):
        return False
    return f"class {member.__name__}" in inspect.getsource(import_module(member.__module__))


def _describe_assigned(module: ModuleType, name: str) -> Iterator[str]:
    """A constant or a type that is put together: what it is, as it is written, and the text below it."""
    origin, original = _origin(module, name)
    value, doc = _assignments(origin)[original]
    yield f"### `{name}`"
    if not re.search(r"\b_[a-z]", value):
        yield _CODE.format(f"{name} = {value}")
    yield text_of(doc)


def _origin(module: ModuleType, name: str) -> tuple[ModuleType, str]:
    """The module that assigns a value to a name which another one imports, and the name there."""
    package = module.__name__ if hasattr(module, "__path__") else module.__name__.rpartition(".")[0]
    for node in ast.parse(inspect.getsource(module)).body:
        if not isinstance(node, ast.ImportFrom):
            continue
        for alias in node.names:
            if name == (alias.asname or alias.name):
                source = resolve_name("." * node.level + (node.module or ""), package)
                return _origin(import_module(source), alias.name)
    return module, name


@cache
def _assignments(module: ModuleType) -> dict[str, tuple[str, str]]:
    """The names that a module assigns at its top: for each the value as it is written, and the docstring below."""
    source = inspect.getsource(module)
    body = ast.parse(source).body
    found: dict[str, tuple[str, str]] = {}
    for node, below in zip(body, [*body[1:], ast.Pass()], strict=True):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(target, ast.Name) and value is not None:
            written = ast.get_source_segment(source, value)
            if re.fullmatch(
                r"tuple\(_\w+\)", written or ""
            ):  # of a table that nobody sees: its keys are what is public
                written = repr(getattr(module, target.id))
            found[target.id] = (_COMMENT.sub("", written or ""), _docstring(below))
    return found


def _docstring(node: ast.stmt) -> str:
    return inspect.cleandoc(_quoted(node.value)) if isinstance(node, ast.Expr) else ""


def _quoted(node: ast.expr) -> str:
    """A text that stands in the source; empty for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""

"""Mutants of a module: those of mutmut and those that disarm a guard, without those that change only words for people."""

from collections.abc import Iterable
from difflib import unified_diff
from pathlib import Path
from typing import Final, NamedTuple

import libcst as cst
from libcst.metadata import MetadataWrapper
from mutmut.mutation.file_mutation import Mutation, MutationVisitor, combine_mutations_to_source
from mutmut.mutation.mutators import OPERATORS_TYPE, mutation_operators
from mutmut.mutation.pragma_handling import get_ignored_lines


class Mutant(NamedTuple):
    """A change of a function. `key` is how mutmut's trampolines know it, `reached_by` names them in the survey."""

    path: Path
    function: str
    key: str
    diff: str

    @property
    def reached_by(self) -> str:
        """The key of the function that is changed."""
        return self.key.partition("__mutmut_")[0]


class MutatedModule(NamedTuple):
    """The source of a module with all its mutants, and trampolines that choose between them."""

    name: str
    path: Path
    code: str
    mutants: list[Mutant]


def mutate(path: Path) -> MutatedModule:
    """Make all mutants of a module of chatledger."""
    code = path.read_text(encoding="utf-8")
    wrapper = MetadataWrapper(cst.parse_module(code))
    visitor = MutationVisitor([*mutation_operators, *_GUARDS], get_ignored_lines(str(path), code, wrapper))
    module = wrapper.visit(visitor)
    in_words = {id(node) for words in _words_and_types(module) for node in _below(words)}
    mutations = [
        mutation
        for mutation in visitor.mutations
        if id(mutation.original_node) not in in_words and not _is_of_words(mutation)
    ]
    mutated = combine_mutations_to_source(module, mutations, visitor.ignored_classes, visitor.ignored_functions)
    name = ".".join(("chatledger", *path.with_suffix("").parts)).removesuffix(".__init__")
    lines = mutated.code.split("\n")
    texts = {
        function: [line.replace(function, "") for line in lines[span.start - 1 : span.end]]
        for function, span in mutated.line_span_by_function_name.items()
    }
    mutants: list[Mutant] = []
    for function in mutated.mutant_names:
        original = function.partition("__mutmut_")[0]
        changed = [
            line
            for line in unified_diff(texts[f"{original}__mutmut_orig"], texts[function], n=0)
            if line[:3] not in {"---", "+++"} and line[0] in "+-"
        ]
        title = original.removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
        mutants.append(Mutant(path, title, f"{name}.{function}", "\n".join(changed)))
    return MutatedModule(name, path, mutated.code, mutants)


def _never(node: cst.If) -> Iterable[cst.If]:
    """Disarm a guard: what leaves early, or refuses, does so no longer."""
    last = node.body.body[-1]
    if isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], cst.Raise | cst.Return | cst.Continue):
        yield node.with_changes(test=cst.Name("False"))


def _left_out(node: cst.Expr) -> Iterable[cst.Expr]:
    """Leave out a call that is made for its effect, such as a check."""
    if isinstance(node.value, cst.Call | cst.Await):
        yield node.with_changes(value=cst.Ellipsis())


def _other_end(node: cst.Call) -> Iterable[cst.Call]:
    """Take the smaller where the larger was taken, and the other way round."""
    other = {"max": "min", "min": "max"}.get(node.func.value if isinstance(node.func, cst.Name) else "")
    if other:
        yield node.with_changes(func=cst.Name(other))


_GUARDS: Final[OPERATORS_TYPE] = [(cst.If, _never), (cst.Expr, _left_out), (cst.Call, _other_end)]


def _is_of_words(mutation: Mutation) -> bool:
    """
    Whether a mutation changes nothing but the text of an error, which is for people, and judged by them.

    Or the type in a `cast`, which is for checkers.
    """
    before, after = mutation.original_node, mutation.mutated_node
    if isinstance(before, cst.Call) and isinstance(after, cst.Call):
        changed = [argument for argument in before.args if argument not in after.args]
        return any(
            _is_words(argument.value) or (_is_cast(before) and argument is before.args[0]) for argument in changed
        )
    if isinstance(before, cst.Assign | cst.AnnAssign):
        return before.value is not None and _is_words(before.value)
    # mutmut changes a word in three ways: which of them a test notices says nothing about it.
    is_other_case = isinstance(after, cst.SimpleString) and not after.value.strip("\"'").startswith("XX")
    return isinstance(before, cst.BaseString) and (_is_words(before) or is_other_case)


def _below(node: cst.CSTNode) -> Iterable[cst.CSTNode]:
    """Yield a node and all that is in it."""
    yield node
    for child in node.children:
        yield from _below(child)


def _words_and_types(module: cst.Module) -> Iterable[cst.CSTNode]:
    """Yield the texts for people, in which values are shown too, and types that only checkers read."""
    for node in _below(module):
        if isinstance(node, cst.BaseString) and _is_words(node):
            yield node
        elif isinstance(node, cst.Call) and _is_cast(node):
            yield node.args[0]


def _is_cast(node: cst.Call) -> bool:
    return isinstance(node.func, cst.Name) and node.func.value == "cast"


def _is_words(value: cst.BaseExpression) -> bool:
    if isinstance(value, cst.Name):
        return bool(value.value == "msg")
    if isinstance(value, cst.SimpleString):
        return " " in value.value
    if isinstance(value, cst.ConcatenatedString):
        return True
    texts = value.parts if isinstance(value, cst.FormattedString) else ()
    return any(isinstance(part, cst.FormattedStringText) and " " in part.value for part in texts)

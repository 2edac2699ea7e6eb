"""The header of a compiled library, in C99."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from string import Template

from ..values.spec import Spec
from ..values.types import VarType
from .layout import Layout, LibraryFunction

C_TYPES: dict[VarType, str] = {
    VarType.FP32: "float",
    VarType.FP64: "double",
    VarType.INT32: "int32_t",
    VarType.INT64: "int64_t",
    VarType.BOOL: "uint8_t",
}
"""Element type -> the type of its elements in C."""
_RESERVED = frozenset({
    "alignas", "alignof", "and", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch", "char", "class", "compl",
    "const", "continue", "default", "delete", "do", "double", "else", "enum", "explicit", "export", "extern", "false", "float",
    "for", "friend", "goto", "if", "inline", "int", "long", "mutable", "namespace", "new", "not", "nullptr", "operator", "or",
    "private", "protected", "public", "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct",
    "switch", "template", "this", "throw", "true", "try", "typedef", "typeid", "typename", "union", "unsigned", "using",
    "virtual", "void", "volatile", "while", "xor",
})  # fmt: skip
"""Keywords of C and of C++."""


def c_names(names: Iterable[str]) -> dict[str, str]:
    """A name in C, and in C++, for each name -> that name; names that would be the same get numbers."""
    unique_names: dict[str, str] = {}
    for name in names:
        plain = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
        if plain in _RESERVED or not plain or plain[0].isdigit():
            plain = f"{plain}_" if plain in _RESERVED else f"_{plain}"
        unique, number = plain, 2
        while unique in unique_names:
            unique, number = f"{plain}_{number}", number + 1
        unique_names[unique] = name
    return unique_names


_HEADER = Template("""\
/* $name: compiled by Fluid for $made_for.
 *
 * The caller provides all memory: a state, which holds what is learned, and an arena for each thread that computes.
 * They hold no pointers: copy, move, save and load them as bytes. Both must be aligned to ${upper}_ALIGNMENT bytes.
 * The arena needs no initial value. Between calls, write into none of its parts; overwriting all of it is fine.
 *
 * The functions return 0, or a code that ${name}_error explains: an id was out of range, and the call ended before
 * it was used. A fetch that is NULL is not written. */
#ifndef ${upper}_H
#define ${upper}_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ${upper}_STATE_BYTES $state_bytes
#define ${upper}_ARENA_BYTES $arena_bytes
#define ${upper}_ALIGNMENT $alignment

/* Set the state to its first values. */
void ${name}_init(void *state);

$functions

/* The message of a code; a constant text.$errors */
const char *${name}_error(int code);

#ifdef __cplusplus
}
#endif

#endif
""")


def header_of(
    name: str, entries: Sequence[LibraryFunction], layout: Layout, errors: Sequence[str], alignment: int, made_for: str
) -> str:
    """The header.

    Args:
        name: the prefix of all names.
        entries: the functions.
        layout: the sizes of their memory.
        errors: the messages of the codes 1, 2, ...
        alignment: bytes that state and arena have to be aligned to.
        made_for: the processor, in words.
    """
    return _HEADER.substitute(
        name=name,
        upper=name.upper(),
        made_for=_in_comment(made_for),
        state_bytes=layout.state_bytes,
        arena_bytes=layout.arena_bytes,
        alignment=alignment,
        functions="\n\n".join(_functions(name, entries)),
        errors="".join(f"\n *   {number}: {_in_comment(message)}" for number, message in enumerate(errors, 1)),
    )


def _functions(name: str, entries: Sequence[LibraryFunction]) -> Iterator[str]:
    """The structs and prototypes of the functions. Functions of one kind share their structs."""
    for kind in dict.fromkeys(entry.kind for entry in entries):
        same = [entry for entry in entries if entry.kind == kind]
        yield _struct(f"{name}_{kind}_feeds", [entry.feed_specs for entry in same], "const ")
        yield _struct(f"{name}_{kind}_fetches", [entry.fetch_specs for entry in same], "")
        indent = " " * 4
        prototypes = [
            f"int {name}_{entry.name}(void *state, void *arena,\n"
            f"{indent}const struct {name}_{kind}_feeds *feeds, const struct {name}_{kind}_fetches *fetches);"
            for entry in same
        ]
        yield "\n".join([f"/* {_ABOUT[kind]} */", *prototypes])


_ABOUT = {
    "step": "Train on one batch: forward, backward, update.",
    "predict": "Compute predictions; the number behind the name is the number of rows.",
}


def _struct(name: str, specs: Sequence[Mapping[str, Spec]], prefix: str) -> str:
    """A struct of pointers, with the shapes that they have in each function in comments."""
    fields = {key: f"    {prefix}{C_TYPES[spec.dtype]} *{key};" for key, spec in specs[0].items()}
    width = max(map(len, fields.values()), default=0)
    lines = [
        f"{field:<{width}} /* {' or '.join(dict.fromkeys(str(list(one[key].shape)) for one in specs))} */"
        for key, field in fields.items()
    ]
    return "\n".join([f"struct {name} {{", *(lines or ["    char unused; /* nothing is passed */"]), "};"])


def _in_comment(text: str) -> str:
    return text.replace("*/", "* /")

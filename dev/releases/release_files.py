"""Looks up in a release's own files what rlfleet uses of vLLM; nothing is imported or run.

So a release can be compared that has no wheel for this machine's processor.
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from rlfleet_engine.vllm.uses import FLAG, ROUTE, STATE, USES, VARIABLE, Use

Function = ast.FunctionDef | ast.AsyncFunctionDef
MISSING, LACKS = "missing", "lacks "
_VERBS = {"get", "post", "put", "delete", "head"}
_ANY = "*"
"""Stands for the parameters of a function that takes whatever it is given."""


class ReleaseFiles:
    """The Python files of one release."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def uses(self) -> dict[str, str]:
        """Return each use's parameters, "missing", or "lacks …" with parameters that it lacks."""
        return {str(use): self._use(use) for uses in USES.values() for use in uses}

    def _use(self, use: Use) -> str:
        takes = self._takes(use)
        if takes is None:
            return MISSING
        if lacks := sorted(set(use.takes) - set(takes)) if _ANY not in takes else []:
            return LACKS + ", ".join(lacks)
        return ", ".join(takes) if use.takes else ""

    def _takes(self, use: Use) -> list[str] | None:
        """Return the parameters of what a use names; None if it is not there."""
        if use.place == ROUTE:
            return self._route(*use.name.split())
        if use.place == STATE:
            return self._somewhere(f"state.{use.name} =")
        if use.place == FLAG:
            field = use.name.removeprefix("--").replace("-", "_")
            return self._somewhere(f"    {field}: ", f'"{use.name}"')
        if use.place == VARIABLE:
            return [] if use.name in self._text("vllm/envs.py") else None
        return self._of_module(use.place, use.name)

    def _of_module(self, module: str, name: str) -> list[str] | None:
        tree = self._module(module)
        first, _, rest = name.partition(".")
        found = _defined(tree, first) if tree else None
        if isinstance(found, ast.ImportFrom):
            return self._of_module(self._source(module, found), name)
        if rest and isinstance(found, ast.ClassDef):
            return self._of_class(module, found, rest)
        return _parameters(found) if found is not None else None

    def _of_class(self, module: str, kind: ast.ClassDef, name: str) -> list[str] | None:
        """Return a member's parameters; a field, in the body or set by a method, has none."""
        for node in ast.walk(kind):
            if isinstance(node, Function) and node.name == name:
                return _parameters(node)
            if name in _set_names(node):
                return []
        bases = (base.id for base in kind.bases if isinstance(base, ast.Name))
        found = (self._of_module(module, f"{base}.{name}") for base in bases)
        return next((one for one in found if one is not None), None)

    def _route(self, verb: str, path: str) -> list[str] | None:
        handlers = self._routes.get((verb.lower(), path))
        if handlers is None:
            return None
        names = {name for handler in handlers for name in self._accepted(handler)}
        return sorted(name for name in names if not name.startswith("_"))

    def _accepted(self, handler: Function) -> Iterator[str]:
        """Name what a handler takes: parameters, keys that it reads, fields of its body's type."""
        yield from _parameters(handler)
        for node in ast.walk(handler):
            if _is_read_key(node):
                yield node.args[0].value  # type: ignore[attr-defined]
        for argument in (*handler.args.args, *handler.args.kwonlyargs):
            for node in ast.walk(argument.annotation or ast.Pass()):
                if isinstance(node, ast.Name):
                    yield from self._fields(node.id)

    def _fields(self, kind: str, depth: int = 4) -> Iterator[str]:
        for found in self._classes.get(kind, []) if depth else []:
            yield from (name for node in found.body for name in _set_names(node))
            for base in found.bases:
                if isinstance(base, ast.Name):
                    yield from self._fields(base.id, depth - 1)

    @functools.cached_property
    def _entrypoints(self) -> list[ast.Module]:
        files = sorted((self._root / "vllm" / "entrypoints").rglob("*.py"))
        return [ast.parse(path.read_text()) for path in files]

    @functools.cached_property
    def _classes(self) -> dict[str, list[ast.ClassDef]]:
        found: dict[str, list[ast.ClassDef]] = {}
        for tree in self._entrypoints:
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name, []).append(node)
        return found

    @functools.cached_property
    def _routes(self) -> dict[tuple[str, str], list[Function]]:
        """All handlers by verb and path: by decorator, or handed to a router by name."""
        found: dict[tuple[str, str], list[Function]] = {}
        for tree in self._entrypoints:
            functions = {n.name: n for n in ast.walk(tree) if isinstance(n, Function)}
            for function in functions.values():
                for key in filter(None, map(_decorated, function.decorator_list)):
                    found.setdefault(key, []).append(function)
            for key, name in _added(tree):
                if name in functions:
                    found.setdefault(key, []).append(functions[name])
        return found

    def _module(self, module: str) -> ast.Module | None:
        place = self._root.joinpath(*module.split("."))
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.is_file():
                return ast.parse(path.read_text())
        return None

    def _source(self, module: str, found: ast.ImportFrom) -> str:
        """Return the module that an import names, a relative one too."""
        if not found.level:
            return found.module or ""
        parts = module.split(".")
        is_package = self._root.joinpath(*parts).is_dir()
        above = parts[: len(parts) - found.level + is_package]
        return ".".join(filter(None, [*above, found.module]))

    def _text(self, name: str) -> str:
        path = self._root / name
        return path.read_text() if path.is_file() else ""

    def _somewhere(self, *texts: str) -> list[str] | None:
        folders = (self._root / "vllm" / name for name in ("entrypoints", "engine"))
        files = (path for folder in folders for path in sorted(folder.rglob("*.py")))
        found = (text in path.read_text() for path in files for text in texts)
        return [] if any(found) else None


def _defined(tree: ast.Module, name: str) -> ast.AST | None:
    """Find what a module calls by a name."""
    for node in ast.walk(tree):
        if isinstance(node, Function | ast.ClassDef) and node.name == name:
            return node
        if name in _set_names(node):
            return node
        if isinstance(node, ast.ImportFrom) and name in {a.asname or a.name for a in node.names}:
            return node
    return None


def _parameters(node: ast.AST) -> list[str]:
    if not isinstance(node, Function):
        return []
    every = node.args
    if every.vararg and every.kwarg:
        return [_ANY]
    names = [one.arg for one in (*every.posonlyargs, *every.args, *every.kwonlyargs)]
    return [name for name in names if name not in {"self", "cls", "raw_request"}]


def _set_names(node: ast.AST) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {
        str(getattr(target, "id", None) or getattr(target, "attr", ""))
        for target in targets
        if isinstance(target, ast.Name | ast.Attribute)
    }


def _decorated(node: ast.expr) -> tuple[str, str] | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
        return None
    path = node.args[0]
    if node.func.attr in _VERBS and isinstance(path, ast.Constant):
        return node.func.attr, str(path.value)
    return None


def _added(tree: ast.Module) -> Iterator[tuple[tuple[str, str], str]]:
    """Find `add_api_route("/path", handler, methods=["POST"])`, each spelled out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_api_route":
            path, handler = node.args[:2] if len(node.args) > 1 else (None, None)
            if isinstance(path, ast.Constant) and isinstance(handler, ast.Name):
                methods = (one for one in node.keywords if one.arg == "methods")
                for verb in (word for one in methods for word in _words(one)):
                    yield (verb.lower(), str(path.value)), handler.id


def _words(node: ast.AST) -> list[str]:
    return [str(one.value) for one in ast.walk(node) if isinstance(one, ast.Constant)]


def _is_read_key(node: ast.AST) -> bool:
    """Return whether the node is `body.get("key")`."""
    return (
        isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") == "get"
        and bool(node.args)
        and isinstance(node.args[0], ast.Constant)
    )

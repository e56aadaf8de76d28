"""Lua 5.1 with the libraries that Argo CD opens for a script, and no other."""

from typing import Any

from lupa.lua51 import LuaRuntime, lua_type

_TAKEN = "string io os debug math coroutine package require python"
_WITHOUT = "getmetatable('').__index = nil; " + " ".join(f"{one} = nil;" for one in _TAKEN.split())


def run(script: str, obj: dict[str, Any]) -> Any:
    """Return the table that a script returns for an object; raises LuaError."""
    lua = LuaRuntime(register_eval=False, register_builtins=False, unpack_returned_tuples=False)
    lua.execute(_WITHOUT)
    lua.globals()["obj"] = _to_lua(lua, obj)
    return _from_lua(lua.execute(script))


def _to_lua(lua: LuaRuntime, value: Any) -> Any:
    if isinstance(value, dict):
        return lua.table_from({name: _to_lua(lua, one) for name, one in value.items()})
    if isinstance(value, list):
        return lua.table_from([_to_lua(lua, one) for one in value])
    return value


def _from_lua(value: Any) -> Any:
    """Return a table as a list if it has a first item; an empty one is an object."""
    if lua_type(value) != "table":
        return value
    found = {name: _from_lua(one) for name, one in value.items()}
    return list(found.values()) if 1 in found else found

package main

import lua "github.com/yuin/gopher-lua"

// libraries are those that Argo CD opens for a script, but for its os: ours need no time.
var libraries = []struct {
	name string
	open lua.LGFunction
}{
	{lua.LoadLibName, lua.OpenPackage},
	{lua.BaseLibName, lua.OpenBase},
	{lua.TabLibName, lua.OpenTable},
}

// run returns the table that a script returns for an object.
func run(script string, object map[string]any) (any, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for _, one := range libraries {
		state.Push(state.NewFunction(one.open))
		state.Push(lua.LString(one.name))
		state.Call(1, 0)
	}
	state.SetGlobal("obj", toLua(state, object))
	if err := state.DoString(script); err != nil {
		return nil, err
	}
	return fromLua(state.Get(-1)), nil
}

func toLua(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, one := range value {
			table.RawSetString(key, toLua(state, one))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, one := range value {
			table.Append(toLua(state, one))
		}
		return table
	case string:
		return lua.LString(value)
	case int64:
		return lua.LNumber(value)
	case float64:
		return lua.LNumber(value)
	case bool:
		return lua.LBool(value)
	}
	return lua.LNil
}

// fromLua returns a table as a list if it has a first item; an empty one is an object.
func fromLua(value lua.LValue) any {
	switch value := value.(type) {
	case *lua.LTable:
		if value.Len() > 0 {
			list := []any{}
			value.ForEach(func(_, one lua.LValue) { list = append(list, fromLua(one)) })
			return list
		}
		object := map[string]any{}
		value.ForEach(func(key, one lua.LValue) { object[key.String()] = fromLua(one) })
		return object
	case lua.LString:
		return string(value)
	case lua.LNumber:
		return float64(value)
	case lua.LBool:
		return bool(value)
	}
	return nil
}

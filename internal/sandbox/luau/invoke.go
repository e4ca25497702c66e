package luau

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental/table"
	"github.com/tetratelabs/wazero/sys"
)

// errLongjmp is the throw that the interpreter's C code catches.
var errLongjmp = errors.New("luau: a throw of the interpreter's own")

// exportInvokes gives the module what Emscripten's code calls where something
// may be thrown: invoke_* calls the function at an index of the table, and after
// a throw puts the stack back and notes it for the caller.
//
// wazero's imports/emscripten does the same, but has its instances share the
// type of each function, whose key is made when it is first asked for: a data
// race between two scripts.
func exportInvokes(code wazero.CompiledModule, env wazero.HostModuleBuilder) {
	for _, f := range code.ImportedFunctions() {
		module, name, _ := f.Import()
		var do api.GoModuleFunc
		switch {
		case module != "env":
		case name == "emscripten_notify_memory_growth":
			do = func(context.Context, api.Module, []uint64) {}
		case name == "_emscripten_throw_longjmp":
			do = func(context.Context, api.Module, []uint64) { panic(errLongjmp) }
		case strings.HasPrefix(name, "invoke_"):
			do = invoke(f.ParamTypes()[1:], f.ResultTypes())
		}
		if do != nil {
			env.NewFunctionBuilder().WithGoModuleFunction(do, f.ParamTypes(), f.ResultTypes()).Export(name)
		}
	}
}

func invoke(params, results []api.ValueType) api.GoModuleFunc {
	return func(ctx context.Context, mod api.Module, stack []uint64) {
		index := uint32(stack[0])
		copy(stack, stack[1:])
		f := table.LookupFunction(mod, 0, index, params, results)
		var args [2]uint64
		must(ctx, mod, "emscripten_stack_get_current", args[:])
		err := f.CallWithStack(ctx, stack)
		if err == nil {
			return
		}
		if _, closed := errors.AsType[*sys.ExitError](err); closed {
			panic(err)
		}
		must(ctx, mod, "_emscripten_stack_restore", args[:])
		if !errors.Is(err, errLongjmp) {
			panic(err)
		}
		args = [2]uint64{1, 0}
		must(ctx, mod, "setThrew", args[:])
	}
}

// must calls a function of the module that cannot fail.
func must(ctx context.Context, mod api.Module, name string, stack []uint64) {
	f := mod.ExportedFunction(name)
	if f == nil {
		panic(fmt.Errorf("luau: the interpreter has no %s", name))
	}
	if err := f.CallWithStack(ctx, stack); err != nil {
		panic(err)
	}
}

package wasmpatch

import (
	"context"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"umbra/internal/need"
)

// module has a global that is 0 and never set (0), one that is an address (1), a memory, a table, and one function i32 -> i32 of a body.
func module(body []byte) []byte {
	section := func(id byte, body ...byte) []byte {
		return append(appendU32([]byte{id}, uint32(len(body))), body...)
	}
	m := append([]byte(nil), magic...)
	m = append(m, section(1, 4, 0x60, 0, 0, 0x60, 1, 0x7f, 1, 0x7f, 0x60, 3, 0x7f, 0x7f, 0x7f, 1, 0x7f, 0x60, 3, 0x7f, 0x7f, 0x7f, 0)...)
	m = append(m, section(2, 3, 3, 'e', 'n', 'v', 4, 't', 'i', 'c', 'k', 0, 0, 3, 'e', 'n', 'v', 4, 'h', 'o', 's', 't', 0, 2, 3, 'e', 'n', 'v', 4, 'p', 'u', 's', 'h', 0, 3)...)
	m = append(m, section(3, 2, 1, 1)...)
	m = append(m, section(4, 1, 0x70, 0, 2)...)
	m = append(m, section(5, 1, 1, 2, 3)...)
	m = append(m, section(6, 2, 0x7f, 1, 0x41, 0, 0x0b, 0x7f, 1, 0x41, 0x80, 0x08, 0x0b)...)
	m = append(m, section(7, 3, 1, 'f', 0, 3, 1, 't', 0, 4, 3, 'm', 'e', 'm', 2, 0)...)
	m = append(m, section(9, 1, 0, 0x41, 0, 0x0b, 2, 0, 3)...)
	f := append([]byte{1, 2, 0x7f}, append(body, opEnd)...)
	through := []byte{0, 0x20, 0, 0x41, 1, 0x11, 1, 0, 0x0b} // t(x) is table[1](x)
	code := append(appendU32([]byte{2}, uint32(len(f))), f...)
	code = append(append(code, byte(len(through))), through...)
	return append(m, section(10, code...)...)
}

// instance runs a module; host and push are its imports.
func instance(t *testing.T, m []byte, host func(mod api.Module, stack []uint64), push func(mod api.Module, stack []uint64)) api.Module {
	t.Helper()
	ctx := context.Background()
	r := wazero.NewRuntime(ctx)
	t.Cleanup(func() { _ = r.Close(ctx) })
	give := func(f func(api.Module, []uint64)) api.GoModuleFunc {
		return func(_ context.Context, mod api.Module, stack []uint64) {
			if f != nil {
				f(mod, stack)
			}
		}
	}
	three := []api.ValueType{api.ValueTypeI32, api.ValueTypeI32, api.ValueTypeI32}
	_, err := r.NewHostModuleBuilder("env").
		NewFunctionBuilder().WithGoModuleFunction(give(nil), nil, nil).Export("tick").
		NewFunctionBuilder().WithGoModuleFunction(give(host), three, three[:1]).Export("host").
		NewFunctionBuilder().WithGoModuleFunction(give(push), three, nil).Export("push").
		Instantiate(ctx)
	need.NoError(t, err)
	mod, err := r.Instantiate(ctx, m)
	need.NoError(t, err)
	return mod
}

func call(t *testing.T, mod api.Module, name string, n uint64) uint64 {
	t.Helper()
	out, err := mod.ExportedFunction(name).Call(context.Background(), n)
	need.NoError(t, err)
	return out[0]
}

func TestShortcut(t *testing.T) {
	m := module([]byte{0x20, 0, 0x41, 1, 0x6a}) // f(n) is n + 1
	patched, err := Patch(m, Options{MinPages: 1, MaxPages: 1, TickModule: "env", TickName: "tick", Every: 1000,
		Shortcut: &Shortcut{Function: 3, Push: 2, Stack: 1, HostModule: "env", HostName: "host", Room: 64}})
	need.NoError(t, err)
	var pushed []string
	mod := instance(t, patched, func(mod api.Module, stack []uint64) {
		room, size := uint32(stack[1]), uint32(stack[2])
		if room != 1024-64 || size != 64 {
			t.Errorf("room of %d bytes at %d", size, room)
		}
		if stack[0] != 5 {
			stack[0] = 1<<32 - 1
			return
		}
		mod.Memory().Write(room, []byte("five"))
		stack[0] = 4
	}, func(mod api.Module, stack []uint64) {
		b, _ := mod.Memory().Read(uint32(stack[1]), uint32(stack[2]))
		pushed = append(pushed, string(b))
	})
	for range 2 {
		if got := call(t, mod, "t", 7); got != 8 {
			t.Errorf("the function behind the host returns %d", got)
		}
		if got := call(t, mod, "t", 5); got != 1 {
			t.Errorf("the host returns %d", got)
		}
	}
	if len(pushed) != 2 || pushed[0] != "five" || pushed[1] != "five" {
		t.Errorf("pushed %q", pushed)
	}
	for name, s := range map[string]Shortcut{
		"no such function": {Function: 9, Push: 2, Stack: 1, HostModule: "env", HostName: "host"},
		"no host function": {Function: 3, Push: 2, Stack: 1, HostModule: "env", HostName: "hast"},
		"of another form":  {Function: 3, Push: 2, Stack: 1, HostModule: "env", HostName: "push"},
	} {
		if _, err := Patch(m, Options{MaxPages: 1, TickModule: "env", TickName: "tick", Every: 1, Shortcut: &s}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzShortcut(f *testing.F) {
	f.Add(module([]byte{0x20, 0, 0x41, 1, 0x6a}))
	f.Fuzz(func(_ *testing.T, m []byte) {
		_, _ = Patch(m, Options{MaxPages: 1, TickModule: "env", TickName: "tick", Every: 1,
			Shortcut: &Shortcut{Function: 3, Push: 2, Stack: 1, HostModule: "env", HostName: "host", Room: 64}})
	})
}

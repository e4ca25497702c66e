package wasmpatch

import (
	"bytes"
	"context"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"umbra/internal/need"
)

// sample is a module that imports env.tick and env.other, has a memory, a
// global, and a function count(n) that loops n times and gives n.
func sample() []byte {
	section := func(id byte, body ...byte) []byte { return append([]byte{id, byte(len(body))}, body...) }
	m := append([]byte(nil), magic...)
	m = append(m, section(1, 2, 0x60, 0, 0, 0x60, 1, 0x7f, 1, 0x7f)...)
	m = append(m, section(2, 2, 3, 'e', 'n', 'v', 5, 'o', 't', 'h', 'e', 'r', 0, 0, 3, 'e', 'n', 'v', 4, 't', 'i', 'c', 'k', 0, 0)...)
	m = append(m, section(3, 1, 1)...)
	m = append(m, section(5, 1, 1, 2, 3)...)
	m = append(m, section(6, 1, 0x7f, 1, 0x41, 7, 0x0b)...)
	m = append(m, section(7, 2, 5, 'c', 'o', 'u', 'n', 't', 0, 2, 3, 'm', 'e', 'm', 2, 0)...)
	body := []byte{1, 1, 0x7f, 0x03, 0x40, 0x20, 1, 0x41, 1, 0x6a, 0x22, 1, 0x20, 0, 0x48, 0x0d, 0, 0x0b, 0x20, 1, 0x0b}
	return append(m, section(10, append([]byte{1, byte(len(body))}, body...)...)...)
}

func options() Options {
	return Options{MinPages: 1, MaxPages: 5, TickModule: "env", TickName: "tick", Every: 10}
}

func TestPatch(t *testing.T) {
	patched, err := Patch(sample(), options())
	need.NoError(t, err)
	ctx := context.Background()
	r := wazero.NewRuntime(ctx)
	defer r.Close(ctx)
	ticks := 0
	env := r.NewHostModuleBuilder("env")
	env.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(context.Context, api.Module, []uint64) { ticks++ }), nil, nil).Export("tick")
	env.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(context.Context, api.Module, []uint64) { t.Error("other") }), nil, nil).Export("other")
	if _, err := env.Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	mod, err := r.Instantiate(ctx, patched)
	need.NoError(t, err)
	out, err := mod.ExportedFunction("count").Call(ctx, 1000)
	if err != nil || out[0] != 1000 || ticks != 100 {
		t.Errorf("%v, %v, %d ticks", out, err, ticks)
	}
	if most, _ := mod.ExportedMemory("mem").Definition().Max(); most != 5 || mod.Memory().Size() != 1<<16 {
		t.Errorf("at most %d pages, %d bytes", most, mod.Memory().Size())
	}
}

func TestPatchRefuses(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"no function": func(o *Options) { o.TickName = "tock" },
		"no rounds":   func(o *Options) { o.Every = 0 },
		"limits":      func(o *Options) { o.MinPages = 6 },
	} {
		o := options()
		change(&o)
		if _, err := Patch(sample(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	m := sample()
	for n := range m {
		_, _ = Patch(m[:n], options()) // no panic
	}
	if _, err := Patch(bytes.Replace(m, []byte{0x0d, 0}, []byte{0xfd, 0}, 1), options()); err == nil {
		t.Error("an unknown instruction is taken")
	}
}

func TestSignedNumbers(t *testing.T) {
	for _, c := range []struct {
		n    int32
		want []byte
	}{{0, []byte{0}}, {63, []byte{63}}, {64, []byte{0xc0, 0}}, {-1, []byte{0x7f}}, {-65, []byte{0xbf, 0x7f}}, {10000, []byte{0x90, 0xce, 0}}} {
		if got := appendS32(nil, c.n); !bytes.Equal(got, c.want) {
			t.Errorf("%d is %x, want %x", c.n, got, c.want)
		}
	}
}

func FuzzPatch(f *testing.F) {
	f.Add(sample())
	f.Fuzz(func(_ *testing.T, m []byte) { _, _ = Patch(m, options()) })
}

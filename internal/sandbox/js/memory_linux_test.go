package js

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"umbra/internal/need"
)

// TestChildIsBoundedAsAWhole holds that a program's memory bounds the compiler's
// work on its text too: esbuild takes a hundred times the text's size for these.
func TestChildIsBoundedAsAWhole(t *testing.T) {
	prelude, err := preludeCode()
	need.NoError(t, err)
	o := Options{Command: plainChild(t)}
	o.setDefaults()
	for name, code := range map[string]string{
		"objects":   "export default " + strings.Repeat("{a:", 1_000_000),
		"operators": "let x = " + strings.Repeat("a+", 3_000_000) + "1;",
	} {
		t.Run(name, func(t *testing.T) {
			const memory = 64 << 20
			p, err := startProcess(o.Command, prelude, memory, false)
			need.NoError(t, err)
			defer p.end()
			job := &task{Name: "main.ts", Code: code, Memory: memory, Output: 1 << 20}
			out, err := p.do(t.Context(), job, Options{Output: 1 << 20}, nil, 20*time.Second)
			need.NoError(t, err)
			if out.Failure == "" {
				t.Error("the program ran")
			}
			p.end()
			usage := p.cmd.ProcessState.SysUsage().(*syscall.Rusage)
			// The program file's own pages are shared, and some 40 MiB.
			if most := int64(memory + overhead + 64<<20); usage.Maxrss<<10 > most {
				t.Errorf("the child took %d MiB, more than %d", usage.Maxrss>>10, most>>20)
			}
		})
	}
}

package tests

import (
	"bytes"
	"os"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// A call of a method by a name that is known only at run time makes the linker keep all
// methods of all types: a third more bytes. Templates do that, and the validator of
// requests that gin has. The names of functions are in the program also without symbols.
func TestProgramKeepsOnlyWhatItCalls(t *testing.T) {
	data, err := os.ReadFile(harness.Binary(t))
	need.NoError(t, err)
	if !bytes.Contains(data, []byte("main.command")) {
		t.Fatal("the program has no names of functions")
	}
	for _, name := range []string{"text/template.(*state).evalField", "validator/v10.tryCallValidateFn", "reflect.Value.Methods"} {
		if bytes.Contains(data, []byte(name)) {
			t.Errorf("%s is in the program; `go build -ldflags=-dumpdep ./cmd/umbra` lists what leads there", name)
		}
	}
}

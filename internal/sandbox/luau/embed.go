package luau

import (
	"embed"
	"errors"
)

// The folder holds a placeholder until make embed puts the interpreter there.
//
//go:embed engine
var engine embed.FS

//go:embed prelude.luau
var prelude string

// ErrNotEmbedded says that the program was built without the interpreter.
var ErrNotEmbedded = errors.New("the Luau interpreter is not part of this build: build with make build (it runs make embed)")

// Embedded reports whether the interpreter is part of this program.
func Embedded() bool {
	_, err := engine.Open("engine/luau.wasm")
	return err == nil
}

func module() ([]byte, error) {
	b, err := engine.ReadFile("engine/luau.wasm")
	if err != nil {
		return nil, ErrNotEmbedded
	}
	return b, nil
}

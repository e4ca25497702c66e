// Command embed takes the Luau interpreter out of its npm package, patches it
// (see wasmpatch), and writes it where internal/sandbox/luau embeds it.
//
//	go run ./internal/sandbox/luau/embed -package DIR -out FILE
//
// The package is pinned by its lock file; the module in it is held against a
// hash once more, because the sandbox knows how this very build lays out its
// values.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"umbra/internal/sandbox/luau/wasmpatch"
)

// want is the SHA-256 of the module in luau-web 1.4.0's Asyncify build.
const want = "922ec950bb3c30604cf06654ad554cded3a43d7d65378f292aefe506c0b2903b"

// limits are what the interpreter gets: 64 MiB of memory, and a call of the
// host after so many rounds of loops, some ten microseconds.
var limits = wasmpatch.Options{
	MinPages: 32, MaxPages: 1024,
	// The package's own start-up hook has nothing to do under this host.
	TickModule: "env", TickName: "ensureInterop",
	Every: 10_000,
	// string.format, whose host function is one that served objects of a host
	// that scripts here are never given.
	Shortcut: &wasmpatch.Shortcut{
		Function: 515, Push: 262, Stack: 0,
		HostModule: "env", HostName: "prepareJSKeyList", Room: 1024,
	},
}

func main() {
	dir := flag.String("package", "", "the unpacked npm package luau-web in `DIR`")
	out := flag.String("out", "", "write the module to `FILE`")
	flag.Parse()
	log.SetFlags(0)
	if err := run(*dir, *out); err != nil {
		log.Fatal("embed: ", err)
	}
}

func run(dir, out string) error {
	script, err := os.ReadFile(filepath.Join(dir, "src", "lib", "Luau.Web.Asyncify.js"))
	if err != nil {
		return err
	}
	module, err := extract(script)
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(module); hex.EncodeToString(sum[:]) != want {
		return fmt.Errorf("the module has the SHA-256 %x, not %s", sum, want)
	}
	patched, err := wasmpatch.Patch(module, limits)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(out); err == nil && bytes.Equal(old, patched) {
		return nil // its time stays, and with it the build cache
	}
	return os.WriteFile(out, patched, 0o666)
}

// extract finds the module, in base64, in the script that carries it.
func extract(script []byte) ([]byte, error) {
	_, rest, ok := bytes.Cut(script, []byte(`base64Decode("AGFzbQ`))
	text, _, end := bytes.Cut(rest, []byte(`"`))
	if !ok || !end {
		return nil, errors.New("the script carries no WebAssembly module")
	}
	return base64.StdEncoding.DecodeString("AGFzbQ" + string(text))
}

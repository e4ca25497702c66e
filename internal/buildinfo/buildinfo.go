// Package buildinfo is the version of the program.
package buildinfo

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker (Makefile) to what git describes.
var version = "dev"

// Line is what "umbra version" and "umbra --version" print.
func Line() string {
	return fmt.Sprintf("umbra %s %s %s/%s\n", Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// Version is the linker's word, else that of the module.
func Version() string {
	if version != "dev" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return version
}

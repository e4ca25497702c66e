package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"umbra/tests/bench/disk"
	"umbra/tests/bench/peers"
)

// conditions returns in a line what a figure belongs to.
func conditions(ctx context.Context, scale string, d disk.Disk) string {
	return fmt.Sprintf("%s; %s scale; %s; %d × %s; Linux %s; %s; %s", d.FS, scale, time.Now().UTC().Format("2006-01-02 15:04 UTC"),
		runtime.NumCPU(), processor(), kernel(), runtime.Version(), peers.GitVersion(ctx))
}

func processor() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "?"
	}
	return string(bytes.TrimRight(u.Release[:], "\x00"))
}

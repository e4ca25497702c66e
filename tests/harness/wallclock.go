package harness

import (
	"bytes"
	"debug/elf"
	encoding "encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"umbra/internal/need"
)

// WallClock sets the wall clock of one running process, and of no other: the
// function of the vDSO (vdso(7)) that reads the clocks is replaced in the process's
// memory by a system call whose answer for CLOCK_REALTIME is shifted. Times that the
// kernel gives to files stay.
type WallClock struct {
	t   testing.TB
	mem *os.File // /proc/PID/mem
	at  int64    // address of the shift, in seconds
}

// shiftedClock is clock_gettime(2), and the shift is added to the seconds of
// CLOCK_REALTIME.
var shiftedClock = []byte{
	0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, 228
	0x0f, 0x05, // syscall
	0x85, 0xff, // test edi, edi
	0x75, 0x0a, // jne +10
	0x48, 0x8b, 0x0d, 0x0e, 0x00, 0x00, 0x00, // mov rcx, [rip+14]
	0x48, 0x01, 0x0e, // add [rsi], rcx
	0xc3, // ret
}

// shiftAt is where the shift follows, aligned to be written at once.
const shiftAt = 0x20

// NewWallClock replaces the function in a process.
func NewWallClock(t testing.TB, pid int) *WallClock {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		need.Missing(t, "the clock of a process can be set on linux/amd64 only")
	}
	from, to := vdsoOf(t, pid)
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mem.Close() })
	image := make([]byte, to-from)
	if _, err := mem.ReadAt(image, from); err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	c := &WallClock{t: t, mem: mem}
	for _, s := range symbols {
		if s.Name != "__vdso_clock_gettime" {
			continue
		}
		at := from + int64(s.Value)
		code := append(bytes.Clone(shiftedClock), make([]byte, shiftAt+8-len(shiftedClock))...)
		if s.Value%8 != 0 || s.Size != 0 && s.Size < uint64(len(code)) {
			t.Fatalf("the vDSO's function is at %x, %d bytes", s.Value, s.Size)
		}
		c.at = at + shiftAt
		stopOutside(t, pid, from, to)
		_, err := mem.WriteAt(code, at)
		if kerr := syscall.Kill(pid, syscall.SIGCONT); err != nil || kerr != nil {
			t.Fatal(err, kerr)
		}
		return c
	}
	t.Fatal("the vDSO has no clock_gettime")
	return nil
}

// vdsoOf returns where a process has the vDSO.
func vdsoOf(t testing.TB, pid int) (from, to int64) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
				t.Fatal(err)
			}
			return from, to
		}
	}
	t.Fatal("the process has no vDSO")
	return 0, 0
}

// stopOutside stops a process at a moment in which none of its threads is in a
// range of addresses.
func stopOutside(t testing.TB, pid int, from, to int64) {
	t.Helper()
	inside := func() bool {
		list, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
		if err != nil || len(list) == 0 {
			t.Fatal("no threads", err)
		}
		for _, name := range list {
			line, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			f := strings.Fields(string(line))
			var pc int64
			if _, err := fmt.Sscanf(f[len(f)-1], "0x%x", &pc); err != nil || pc >= from && pc < to {
				return true // "running": it is not stopped yet
			}
		}
		return false
	}
	for range 1000 {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if !inside() {
				return
			}
			<-time.After(time.Millisecond)
		}
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("the process does not stop")
}

// Set moves the process's clock by a time, counted from the true one.
func (c *WallClock) Set(d time.Duration) {
	c.t.Helper()
	var b [8]byte
	encoding.LittleEndian.PutUint64(b[:], uint64(int64(d/time.Second)))
	if _, err := c.mem.WriteAt(b[:], c.at); err != nil {
		c.t.Fatal(err)
	}
}

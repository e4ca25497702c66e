package refs

import (
	"context"
	"os"
	"strconv"
	"syscall"
)

// heldOpen reports which of the files some process has open, by /proc/*/fd
// (proc(5)). It sees the processes of the server's own user, and with root's
// rights all; no other process gets into a data directory, whose mode is 0700.
func heldOpen(ctx context.Context, files []FileID) (map[FileID]bool, error) {
	want := make(map[FileID]bool, len(files))
	for _, f := range files {
		want[f] = true
	}
	held := make(map[FileID]bool)
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, p := range procs {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		dir := "/proc/" + p.Name() + "/fd"
		fds, err := os.ReadDir(dir)
		if err != nil {
			continue // it has ended, or is another user's
		}
		for _, fd := range fds {
			var st syscall.Stat_t
			if syscall.Stat(dir+"/"+fd.Name(), &st) != nil {
				continue
			}
			if id := (FileID{Dev: uint64(st.Dev), Ino: st.Ino}); want[id] {
				held[id] = true
			}
		}
	}
	return held, nil
}

package hook

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// listensForUser reports whether all processes that listen on a TCP port of this machine are
// of the user or of root, and there is one. Where the system has no table of sockets in
// /proc it is true: a server refuses other users itself.
func listensForUser(port, user int) bool {
	const local, state, uid, listen = 1, 3, 7, "0A" // proc_pid_net(5)
	suffix := ":" + strings.ToUpper(strconv.FormatInt(1<<16|int64(port), 16)[1:])
	known, found := false, false
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		raw, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		known = true
		for line := range strings.Lines(string(raw)) {
			f := strings.Fields(line)
			if len(f) <= uid || f[state] != listen || !strings.HasSuffix(f[local], suffix) {
				continue
			}
			if f[uid] != "0" && f[uid] != strconv.Itoa(user) {
				return false
			}
			found = true
		}
	}
	return found || !known
}

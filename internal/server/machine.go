package server

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"umbra/internal/clock"
	"umbra/internal/state"
	"umbra/internal/workspace/host"
)

// machinesBucket has what each node calls its machine, by the node's name.
const machinesBucket = "machines"

// machine names the file system that this process sees: two processes with the same
// name mean the same directory by a path, until the system is started again. "" where
// that is not known.
func machine() string {
	boot := clock.BootID()
	mounts, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil || boot == "" {
		return ""
	}
	root, err := host.OS{}.Stat("/") // another one after chroot
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s %s %d:%d", strings.TrimSpace(boot), mounts, root.Dev, root.Ino)
}

// sameMachine writes where this node is, and returns what reports whether another node of
// the cluster sees the same directories as this one.
func sameMachine(db *state.DB, name string, log *slog.Logger) (func(server string) bool, error) {
	own := machine()
	if err := db.Put(machinesBucket, name, own); err != nil {
		return nil, err
	}
	return func(server string) bool {
		var other string
		if _, err := db.Get(machinesBucket, server, &other); err != nil {
			log.Warn("it is not known where a node is", "node", server, "error", err)
		}
		return own != "" && other == own
	}, nil
}

package server

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"umbra/internal/clock"
	"umbra/internal/cluster"
	"umbra/internal/errs"
	"umbra/internal/state"
	"umbra/internal/workspace/host"
)

// machinesBucket has what each node calls its machine, by the node's name.
const machinesBucket = "machines"

// foldersBucket has whether each node opens directories, by the node's name.
const foldersBucket = "node_folders"

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

// sameMachine writes where this node is, and whether it opens directories, and returns what reports whether another node of
// the cluster sees the same directories as this one.
func sameMachine(db *state.DB, name string, folders bool, log *slog.Logger) (func(server string) bool, error) {
	own := machine()
	err := db.Update(func(tx *state.Tx) error {
		if err := tx.Put(machinesBucket, name, own); err != nil {
			return err
		}
		return tx.Put(foldersBucket, name, folders)
	})
	if err != nil {
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

// FolderNode returns the live node of a cluster that a verb is about which brings a
// directory's workspace: the one of a name, or, with none, the only live one on this
// machine. Errors: node_not_found, node_down, physical_off.
func FolderNode(ctx context.Context, a *cluster.Admin, db *state.DB, name string) (cluster.Peer, error) {
	live, err := a.Live(ctx)
	if err != nil {
		return cluster.Peer{}, err
	}
	var found []cluster.Peer
	own := machine()
	for _, p := range live {
		var at string
		if name == "" {
			if _, err := db.Get(machinesBucket, p.Name, &at); err != nil {
				return cluster.Peer{}, err
			}
		}
		if p.Name == name || name == "" && own != "" && at == own {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		switch {
		case name == "" && len(found) > 1:
			return cluster.Peer{}, errs.New(errs.Forbidden, "physical_off", "Several nodes are live on this machine: name one (--node).")
		case name == "":
			return cluster.Peer{}, errs.New(errs.Forbidden, "physical_off", "No node is live on this machine: name one (--node).")
		}
		known, err := a.Known(ctx, name)
		switch {
		case err != nil:
			return cluster.Peer{}, err
		case !known:
			return cluster.Peer{}, errs.New(errs.NotFound, "node_not_found", "The cluster has no node %s.", name)
		}
		return cluster.Peer{}, errs.New(errs.Unavailable, "node_down", "Node %s does not run.", name)
	}
	opens := false
	if _, err := db.Get(foldersBucket, found[0].Name, &opens); err != nil {
		return cluster.Peer{}, err
	}
	if !opens {
		return cluster.Peer{}, errs.New(errs.Forbidden, "physical_off", "Node %s opens no directories (cluster.physical).", found[0].Name)
	}
	return found[0], nil
}

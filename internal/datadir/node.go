package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// NodeFile is the file of the data directory that says which life of which cluster
// had it last. Backups leave it out: that life may be another server's.
const NodeFile = "node"

// CheckSingle refuses the data directory of a cluster's node: the workspaces and their
// records are the cluster's, and a server without it would find none of them.
func CheckSingle(dir string) error {
	_, err := os.Stat(filepath.Join(dir, NodeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%s is the data directory of a cluster's node: start the node, or ask one that runs (--server)", dir)
}

// OfNode reports whether a directory is the data directory of a cluster's node.
func OfNode(dir string) bool {
	for _, name := range []string{NodeFile, "format"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || !st.Mode().IsRegular() {
			return false
		}
	}
	return true
}

package upkeep

import "os"

// isFolder reports whether a folder is there.
func isFolder(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

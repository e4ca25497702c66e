package mounts

import "os"

// Read gives this process's table.
func Read() (Table, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Parse(f)
}

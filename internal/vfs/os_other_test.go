//go:build !linux

package vfs

func osImplementations() map[string]func(string) (FS, error) {
	return map[string]func(string) (FS, error){}
}

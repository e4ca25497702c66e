//go:build !linux

package luau

// warm does nothing: pages come as they are used.
func (r *room) warm(int) {}

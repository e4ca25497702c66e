package luau

import "golang.org/x/sys/unix"

// warm has the first n bytes be there before they are used.
func (r *room) warm(n int) {
	if n == 0 {
		return
	}
	// A kernel before 5.14 does not know it; then they come as they are used.
	_ = unix.Madvise(r.all[:min(n, len(r.all))], unix.MADV_POPULATE_WRITE)
}

package room

import "golang.org/x/sys/unix"

// statfs asks the system, for who has no rights beyond others'.
func statfs(dir string) (free, total int64, err error) {
	var st unix.Statfs_t
	for {
		if err = unix.Statfs(dir, &st); err != unix.EINTR {
			break
		}
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Blocks) * int64(st.Bsize), err
}

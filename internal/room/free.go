package room

// Free gives how many bytes of a folder's file system are free for this user,
// and how many there are.
func Free(dir string) (free, total int64, err error) { return statfs(dir) }

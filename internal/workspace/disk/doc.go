// Package disk is the content of a workspace: what is at a path, which blob a file
// is, and whether the content is there at all. A Disk has one of two media: a
// directory (folder), or the newest tree of the history, for virtual workspaces.
//
// Invariants: a file's bytes are its blob's only if its stat data were the same
// before and after it was read; nothing outside of the root is opened; a FIFO does
// not block. Nothing here records or changes anything but the index, which is a
// cache.
package disk

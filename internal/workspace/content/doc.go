// Package content prepares the new bytes of a request: as files without a name on
// the workspace's disk, and as blobs. It holds no lock, since a client may be slow.
package content

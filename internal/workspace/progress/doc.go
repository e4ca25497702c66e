// Package progress keeps how far the disk follows history: the watermark of
// settled commits, which survives a kill, and the checkpoint, which survives a
// power failure. Which files a checkpoint syncs, and how, is the caller's.
package progress

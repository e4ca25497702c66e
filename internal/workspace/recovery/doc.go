// Package recovery brings the disk up to the history after a stop that was not
// clean: what was durable in history and not yet on disk is finished, what a power
// failure left torn is recorded and written again, and displaced files are recorded.
package recovery

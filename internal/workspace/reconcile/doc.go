// Package reconcile records what people and other programs change in the directory.
// A Watcher names paths that may have changed; they are compared with history, and
// so is everything at a start, where events were lost, and from time to time. What
// differs is read without locks, compared again under them, and recorded.
//
// Invariants: writers go on, except on the paths that differ; what a watcher says
// decides nothing; our own writes are known by their content.
package reconcile

// Package watcher turns fsnotify's events into dirty paths, and nothing else.
// The only user files it reads are those with ignore rules, and it makes no
// decisions. One fsnotify instance, a few goroutines and one timer serve all
// workspaces; an idle workspace costs memory for its directories and no time.
//
// # What it promises
//
// For a workspace that is Watching, every change in a watched directory that
// raises an event is reported to Space.Dirty within Options.Most; if events were
// lost, Space.Lost is called instead. It promises nothing for what raises no
// event (a mapped file, a write through a hard link from outside, the upper layer
// of an overlay, another host's write on a network file system): the reconciler's
// periodic scans find those, and run every minute where Trusted is false.
//
// A dirty path means itself and everything below it. It may be a file, a
// directory, or no longer exist. A new directory (made, moved in, readable again)
// is reported as one path, once all directories in it are watched; so is a
// directory with more than Options.FolderNames changed names. Ignored files are
// reported like any other: rules are the reconciler's.
//
// # How the reconciler uses it
//
//  1. Add, then a full scan: the watches exist before the scan begins, so changes
//     during the scan are reported.
//  2. Dirty: put the paths into a set of one's own and wake up; compare each
//     with the tip. A directory is walked (scan.Options.Start).
//  3. Lost and RulesChanged: a full scan. The watches are renewed before either is
//     called.
//  4. Gone: nothing is recorded as deleted; Add again when the directory is back.
//  5. Sync, then take the set: all that changed before the call is in it. An
//     error means: scan.
//  6. Trusted decides between the long and the short period of scans. Where a
//     State is not Watching, Add again at one of the periodic scans.
//  7. Cover, when something comes into history that a rule ignores.
//  8. Remove, when the workspace is unloaded.
//
// # How it works
//
// Only directories are watched, since editors save by rename; ignored ones are
// never registered, unless they contain something tracked. A directory is watched
// first and then listed, from the top down: an entry made in between is in the
// listing, in an event, or in both. When a directory appears, disappears or moves,
// its watches are dropped and set again: below a moved directory events would
// carry outdated names, and the result of a new walk is right whatever the order
// of the events was.
//
// Sync uses a cookie to prove that every earlier event was seen: events of one
// instance arrive in the order in which they happened, across directories, so a
// rename in a private directory of the server is queued behind them all. Nothing
// is written into a workspace, which may be read-only or on a full disk, and
// whose root would get a new mtime.
//
// Memory: about half a kilobyte a watched directory; the names not yet reported,
// at most Options.MaxNames a workspace, beyond which their directories are
// reported instead; the directories not yet walked, beyond a limit of which all
// are walked again and Lost is called.
//
// # Locks
//
// Watcher.mu guards all maps and is held across calls into fsnotify, so that a
// watch and our record of it change together. The goroutine that drains the errors
// never takes it: fsnotify sends some errors while it holds the lock that its Add
// needs. Walks of one workspace never overlap (space.active), and neither do
// its callbacks (space.telling).
package watcher

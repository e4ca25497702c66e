// Package watcher turns fsnotify's events into dirty paths, and nothing else:
// it reads no file of a person's but those that hold ignore rules, and it
// decides nothing. One fsnotify instance, a handful of goroutines and one timer
// serve all workspaces; an idle one costs memory for its folders and no time.
//
// # What it promises
//
// For a workspace that is Watching, every change in a watched folder that raises
// an event is told to Space.Dirty within Options.Most, or, where events were
// lost, Space.Lost is. It promises nothing for what raises no event (a mapped
// file, a write through a hard link from outside, the upper layer of an
// overlay, another host's write on a network file system): the reconciler's
// periodic scans are there for that, and are every minute where Trusted is
// false.
//
// A dirty path stands for itself and everything under it. It may be a file, a
// folder, or nothing any more. A folder that came (made, moved in, readable
// again) is told as one path, once all folders in it are watched; so is one
// with more than Options.FolderNames names changed. Files that rules ignore are
// told like any other: rules are the reconciler's.
//
// # How the reconciler uses it
//
//  1. Add, then a full scan: the watches stand before the scan begins, so that
//     what changes meanwhile is told.
//  2. Dirty: put the paths into a set of one's own and wake up; compare each
//     with the tip. A folder is walked (scan.Options.Start).
//  3. Lost and RulesChanged: a full scan. The watches have been renewed before
//     either is told.
//  4. Gone: nothing is recorded as deleted; Add again when the folder is back.
//  5. Sync, then take the set: all that changed before the call is in it. An
//     error means: scan.
//  6. Trusted decides between the long and the short period of scans. Where a
//     State is not Watching, Add again at one of the periodic scans.
//  7. Cover, when something comes into history that a rule ignores.
//  8. Remove, when the workspace is put away.
//
// # How it works
//
// Only folders are watched, since editors save by rename; what rules ignore is
// never registered, unless something in it is tracked. A folder is watched
// first and listed then, from the top down: whatever comes into it in between
// is in the listing, in an event, or in both. A name that came, went or moved
// and is or was a folder has its watches dropped and made anew: below a moved
// folder events would bear dead names, and what is found by looking again is
// right whatever the order of the events was.
//
// Sync proves that everything before it was seen by a cookie: events of one
// instance come in the order in which they happened, whatever folder they are
// of, so a rename in a private folder of the server's stands in the queue behind
// them all. Nothing is written into a workspace, which may be read-only or on a
// full disk, and whose root would get a new mtime.
//
// Memory: about half a kilobyte a watched folder; the names not yet told, at
// most Options.MaxNames a workspace, beyond which the folders are told instead;
// the folders not yet looked at, beyond a limit of which all are looked at
// again and Lost is told.
//
// # Locks
//
// Watcher.mu guards all maps and is held across calls into fsnotify, so that a
// watch and our record of it change together. Whoever drains the errors never
// takes it: fsnotify sends some errors while it holds the lock that its Add
// needs. Walks of one workspace never overlap (space.active), and neither do
// its callbacks (space.telling).
//
// The package may import fsnotify, internal/{wspath,ignore,errs} and the
// standard library; nothing here knows of history or HTTP.
package watcher

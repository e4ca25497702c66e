// Package calls knows the times in which tools of agents worked on a workspace,
// and so whose the changes are that are found on disk (contracts/calls.md).
//
// A call begins and ends with a look at everything that the disk holds; what is
// found between belongs to it, by the rules of package claims. What a call did
// is in history: the trailers of its commits. Here is only what history does
// not say: which calls there are, and what they declared.
//
// Records of calls are appended to a log that is never synced, and moved into
// the state database a second later: they survive a kill of the server at any
// moment, a power cut but for the last second.
package calls

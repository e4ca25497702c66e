// Package revert undoes the work of one task, subtask, file or change, and
// nothing else, by a new change set of the workspace.
//
// It never restores an old tree. It takes the entries in effect (package
// history), threads them to files, and asks for each file what its state would
// be without them: where the file still is what the task left, the state that
// the task found; where something else changed it since, a three-way merge of
// both; where that does not come out clean, a conflict that names who changed
// it. All files are then placed at once, so that chains of renames and swaps
// come out right, and handed to workspace.Apply as one request whose every
// operation has the planned state as its precondition: if anything moved
// meanwhile, the plan is made again.
package revert

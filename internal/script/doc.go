// Package script runs scripts: what they are given, what they save, and how many
// run at once. The scripts dialect and the tool execute_script use Service;
// programs in other languages that save files use Output.
//
// Invariants: nothing outside of the output directory is written. The directory
// is made, and becomes a workspace, with the first save. Each save that changes
// a file is a commit of one task.
package script

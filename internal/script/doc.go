// Package script runs scripts (contracts/scripts.md): what they are given, what
// they save, and how many run at once. The scripts dialect and the tool
// execute_script stand on Service; programs in other languages that save files
// stand on Output.
//
// It imports internal/{sandbox/luau,sdk,workspace,task,wspath,errs} and nothing
// of HTTP's server side.
//
// Invariants: nothing outside of the output directory is written. The directory
// is made, and becomes a workspace, with the first save. Each save that changes
// a file is a commit of one task.
package script

// Package check holds what deploy/ says to the schemas of those that read it:
// compose files, and what Helm makes of the chart. It is a module of its own, so that
// its libraries are not the program's.
package check

// Package browse reads the content of a workspace for clients: files, listings and
// trees, with links followed inside of the root and ignored files hidden. It takes
// no lock and changes nothing.
package browse

// Package retire keeps the displaced files of a workspace until history has their
// bytes and no process writes to them, and removes them then. A displaced directory
// is removed once every file in it is recorded.
package retire

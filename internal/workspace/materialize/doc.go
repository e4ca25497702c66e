// Package materialize puts the steps of a plan onto the disk, each by an exchange or
// a rename, and undoes them. What an exchange displaced is compared with what was
// expected; anything else is another process's, and is Foreign.
package materialize

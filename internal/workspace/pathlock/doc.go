// Package pathlock locks paths of one workspace, each with everything under it.
// It knows no disk and no history.
package pathlock

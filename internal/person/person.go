// Package person gives the name of the person who runs the program: one name
// for verbs, the web UI's owner and changes that are found on disk.
package person

import (
	"os/user"
	"strings"
	"sync"

	"github.com/go-git/go-git/v5/config"
)

// Name is git's user.name of this machine (the user's own settings, then the
// system's), else the name of the account; empty if neither is known.
// It is read once in a process.
var Name = sync.OnceValue(func() string {
	for _, scope := range []config.Scope{config.GlobalScope, config.SystemScope} {
		c, err := config.LoadConfig(scope)
		if err != nil {
			continue // a broken file of another program is not ours to report
		}
		if name := strings.TrimSpace(c.User.Name); name != "" {
			return name
		}
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
})

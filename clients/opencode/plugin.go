// Package opencode holds the source of opencode's plugin, for umbra init.
package opencode

import _ "embed"

// Plugin is umbra.js.
//
//go:embed umbra.js
var Plugin string

// Command is the line of Plugin that says what begins and ends calls. With a
// list of words in place of null it is that command, an `umbra hook generic`.
const Command = "const command = null;"

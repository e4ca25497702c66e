package run

import (
	"errors"
	"fmt"
)

// Usage checks the flags of umbra exec, and sets Require and Command. The error says
// what is wrong with them.
func Usage(o *Options, isolate string, list bool, apply, drop string, args []string) error {
	modes := 0
	for _, given := range []bool{list, apply != "", drop != ""} {
		if given {
			modes++
		}
	}
	o.Require, o.Command = isolate == "require", args
	switch {
	case isolate != "try" && isolate != "require":
		return fmt.Errorf("--isolate is try or require, not %q", isolate)
	case modes > 1 || modes == 1 && len(args) > 0:
		return errors.New("--layers, --apply and --drop exclude each other and a command")
	case modes == 0 && len(args) == 0:
		return errors.New("a command is required after --")
	case o.Live && (o.DryRun || o.Require):
		return errors.New("--live has no layer; it excludes --dry-run and --isolate=require")
	case o.Call != "" && (modes > 0 || o.DryRun || o.Live || o.Require || o.Task != "" || o.Subtask != "" || o.Agent != "" || o.Session != ""):
		return errors.New("--call says whose the command is; of the other flags it allows --cwd and --json")
	case (o.Agent == "") != (o.Session == ""):
		return errors.New("--agent and --session go together")
	}
	return nil
}

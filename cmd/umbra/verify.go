package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"umbra/internal/client"
	"umbra/internal/term"
)

func verifyCommand() *cobra.Command {
	v := &verb{}
	var mend bool
	var mended repaired
	cmd := &cobra.Command{
		Use:   "verify [WS…]",
		Short: "Check every object, every hash, and the disk against history",
		Long: `Read the whole history of the workspaces (all, or those named by id or directory):
every object is read and its id computed, every pack compared with its checksum,
every After-Hash with the bytes, every ref with what it was set to; every task's
bounds are looked for, and the folder is compared with the head. Nothing is changed.

With --repair, what can be put right is put right first, and told: indexes of
packs, a lost .keep, refs and their note, HEAD, the commit index; what is readable
of a damaged pack, and objects that still stand elsewhere (in another pack, loose,
in a journal). What is replaced is kept in the workspace's damaged/ folder. What
cannot be repaired is told as lost. The server must not run meanwhile.

The exit status is 1 if anything is not as it should be (with --repair: at the
end). With --json: {"workspaces":[…]}, as the server reports each, with --repair
with "repaired":{"done":[…],"cannot":[…]}.`,
		Example: `  umbra verify
  umbra verify . --json
  umbra verify --repair --data-dir ~/.local/share/umbra`,
	}
	cmd.Flags().BoolVar(&mend, "repair", false, "put right what can be first; the server must be stopped")
	v.connection.flags(cmd.Flags())
	v.outputFlags(cmd.Flags())
	verify := v.action(func(ctx context.Context, args []string) error {
		list, err := v.named(ctx, args)
		if err != nil {
			return err
		}
		bad := false
		check := func(w client.Workspace) (found client.Verified, raw []byte, err error) {
			q := url.Values{}
			if v.private {
				q.Set("record", "false") // as no one else does, nor does verify
			}
			raw, err = v.client.JSON(ctx, client.Request{Method: http.MethodPost, Path: client.Path("workspaces", w.ID, "verify"), Query: q}, &found)
			if e, ok := errors.AsType[*client.Error](err); ok && e.Status == http.StatusInternalServerError {
				found, raw, err = damaged(w)
			}
			bad = bad || !sound(&found)
			if err == nil {
				raw, err = mended.with(w, raw)
			}
			return found, raw, err
		}
		if v.json {
			err = v.printList("workspaces", func(yield func(json.RawMessage, error) bool) {
				for _, w := range list {
					_, raw, err := check(w)
					if !yield(raw, err) || err != nil {
						return
					}
				}
			})
		} else {
			err = v.print(false, func(o *term.Output) error {
				for _, w := range list {
					found, _, err := check(w)
					if err != nil {
						return err
					}
					mended.write(o, w)
					writeVerified(o, &found)
					if err := o.Flush(); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err == nil && bad {
			return exitError{exitFailed}
		}
		return err
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if mend {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
			mended, err = repair(ctx, cmd, &v.connection, args)
			stop()
			if err != nil {
				return err
			}
		}
		return verify(cmd, args)
	}
	return cmd
}

// damaged tells of a workspace that could not even be opened, or read to its
// end; why stands in the server's log.
func damaged(w client.Workspace) (client.Verified, []byte, error) {
	found := client.Verified{Workspace: w.ID, Root: w.Root, Problems: []string{"its history cannot be read; see the server's log"}, Disk: "none"}
	raw, err := json.Marshal(map[string]any{"workspace": w.ID, "root": w.Root, "head": nil, "objects": 0, "commits": 0, "hashes": 0,
		"problems": found.Problems, "disk": found.Disk, "differs": []string{}})
	return found, raw, err
}

// named gives the workspaces that the arguments name; without any, all.
func (v *verb) named(ctx context.Context, args []string) ([]client.Workspace, error) {
	if len(args) == 0 {
		list, _, err := v.client.Workspaces(ctx)
		return list, err
	}
	var list []client.Workspace
	for _, arg := range args {
		w, err := v.findWorkspace(ctx, arg)
		if err != nil {
			return nil, err
		}
		list = append(list, w)
	}
	return list, nil
}

// sound reports whether nothing was found.
func sound(v *client.Verified) bool {
	return len(v.Problems) == 0 && (v.Disk == "same" || v.Disk == "none")
}

// maxListed is how many differing paths are named.
const maxListed = 100

func writeVerified(o *term.Output, v *client.Verified) {
	word := o.Paint(term.Added, "ok ")
	if !sound(v) {
		word = o.Paint(term.Removed, "bad")
	}
	o.Printf("%s  %s  %s, %s and %s checked", word, v.Workspace, count(v.Commits, "commit", "commits"), count(v.Objects, "object", "objects"), count(v.Hashes, "hash", "hashes"))
	switch v.Disk {
	case "same":
		o.Printf("; the disk is as the head")
	case "missing":
		o.Printf("; the directory is missing")
	case "differs":
		o.Printf("; the disk differs from the head in %s", count(len(v.Differs), "path", "paths"))
	}
	o.Printf("\n")
	for _, p := range v.Problems {
		o.Printf("     %s\n", term.Line(p))
	}
	for i, d := range v.Differs {
		if i == maxListed {
			o.Printf("     … and %d more\n", len(v.Differs)-i)
			break
		}
		o.Printf("     %-10s %s\n", d.Reason, term.Name(client.Bytes(d.Path, d.Encoding)))
	}
}

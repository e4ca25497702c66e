package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"umbra/config"
	"umbra/internal/cli"
	"umbra/internal/client"
	"umbra/internal/datadir"
	"umbra/internal/exitcode"
	"umbra/internal/render"
	"umbra/internal/term"
)

// repairHere checks the flags of verify --repair, and repairs.
func repairHere(cmd *cobra.Command, k *cli.Connection, names []string) (datadir.Repaired, error) {
	if k.Server != "" {
		return nil, exitcode.Usage(errors.New("--repair works on the files of a data directory (--data-dir), not over --server"))
	}
	cfg, err := config.Load(cmd.Flags())
	if err != nil {
		return nil, exitcode.Usage(err)
	}
	if _, err := os.Stat(cfg.DataDir); errors.Is(err, fs.ErrNotExist) {
		return nil, exitcode.Usage(fmt.Errorf("data directory %s does not exist", cfg.DataDir))
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return datadir.Repair(ctx, cfg.DataDir, names, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelError})))
}

func verifyCommand() *cobra.Command {
	v := &verb{}
	var mend bool
	var mended datadir.Repaired
	cmd := &cobra.Command{
		Use:   "verify [WS…]",
		Short: "Check every object, every hash, and the disk against history",
		Long: `Read the whole history of the workspaces (all, or those named by id or directory):
the id of every object is computed, every pack is compared with its checksum, every
After-Hash with the bytes, every ref with its recorded value, and the directory with
the head; the first and last commit of every task must exist. Nothing is changed.

With --repair, what can be repaired is repaired first, and reported: indexes of
packs, a lost .keep, refs and their note, HEAD, the commit index; what is readable
of a damaged pack, and objects that are still elsewhere (in another pack, loose,
in a journal). Replaced files are kept in the workspace's damaged/ directory. What
cannot be repaired is reported as lost. The server must not run meanwhile.

The exit status is 1 if anything is not as it should be (with --repair: at the
end). With --json: {"workspaces":[…]}, as the server reports each, with --repair
with "repaired":{"done":[…],"cannot":[…]}.`,
		Example: `  umbra verify
  umbra verify . --json
  umbra verify --repair --data-dir ~/.local/share/umbra`,
	}
	cmd.Flags().BoolVar(&mend, "repair", false, "put right what can be first; the server must be stopped")
	v.Connection.Flags(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	verify := v.Action(func(ctx context.Context, args []string) error {
		list, err := v.Named(ctx, args)
		if err != nil {
			return err
		}
		bad := false
		check := func(w client.Workspace) (found client.Verified, raw []byte, err error) {
			q := url.Values{}
			if v.Private {
				q.Set("record", "false") // as no one else does, nor does verify
			}
			raw, err = v.Client.JSON(ctx, client.Request{Method: http.MethodPost, Path: client.Path("workspaces", w.ID, "verify"), Query: q}, &found)
			if e, ok := errors.AsType[*client.Error](err); ok && e.Status == http.StatusInternalServerError {
				found, raw, err = damaged(w)
			}
			bad = bad || !render.Sound(&found)
			if err == nil {
				raw, err = mended.With(w.ID, raw)
			}
			return found, raw, err
		}
		if v.JSON {
			err = v.PrintList("workspaces", func(yield func(json.RawMessage, error) bool) {
				for _, w := range list {
					_, raw, err := check(w)
					if !yield(raw, err) || err != nil {
						return
					}
				}
			})
		} else {
			err = v.Print(false, func(o *term.Output) error {
				for _, w := range list {
					found, _, err := check(w)
					if err != nil {
						return err
					}
					mended.Write(o, w.ID)
					render.Verified(o, &found)
					if err := o.Flush(); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err == nil && bad {
			return exitcode.With(exitcode.Failed)
		}
		return err
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if mend {
			if mended, err = repairHere(cmd, &v.Connection, args); err != nil {
				return err
			}
		}
		return verify(cmd, args)
	}
	return cmd
}

// damaged describes a workspace that could not even be opened, or read to its
// end; why is in the server's log.
func damaged(w client.Workspace) (client.Verified, []byte, error) {
	found := client.Verified{Workspace: w.ID, Root: w.Root, Problems: []string{"its history cannot be read; see the server's log"}, Disk: "none"}
	raw, err := json.Marshal(map[string]any{"workspace": w.ID, "root": w.Root, "head": nil, "objects": 0, "commits": 0, "hashes": 0,
		"problems": found.Problems, "disk": found.Disk, "differs": []string{}})
	return found, raw, err
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"umbra/internal/cli"
	"umbra/internal/client"
	"umbra/internal/exitcode"
	"umbra/internal/progress"
	"umbra/internal/render"
	"umbra/internal/term"
	"umbra/internal/wspath"
)

func purgeCommand() *cobra.Command {
	v := &verb{}
	var blob string
	var ignore, force, dry bool
	cmd := &cobra.Command{
		Use:   "purge WS PATH | WS --blob ID",
		Short: "Remove a secret from a workspace's whole history",
		Long: `Remove from all history every content that the file at PATH ever had, also under the
names that recorded renames gave it, except the one that is on disk now; or, with
--blob, one content. In every commit the bytes become the blob "purged", and all later
commits get other ids; the server maps old ids to the new ones. When the command
returns, the bytes are off the disk, also from packs that users made in the repository. In
a cluster no object of the store and no live node has them then: it waits for that, for
75 seconds at most, and reports what remains.

It refuses while a file on disk holds such bytes under any name: --ignore removes these
files from the newest state and lists them in the workspace's exclude file (they stay on
disk). It refuses while refs, worktrees or reflogs of users lead to them: --force drops
these.

Scratch, artifacts, earlier backups and clones are not purged. Change the secret first:
every clone still has it.

The exit status is 1 if it refuses, if the path or blob never existed, or if some of a
cluster still has the bytes.`,
		Example: `  umbra purge . config/secrets.env --dry-run
  umbra purge . config/secrets.env
  umbra purge . --blob 3b18e512dba79e4c8300dd08aeb37f8e728b8dad`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case blob == "" && len(args) != 2:
				return exitcode.Usage(errors.New("a workspace WS and a PATH in it are needed, or WS and --blob ID"))
			case blob != "" && len(args) != 1:
				return exitcode.Usage(errors.New("with --blob only the workspace WS is named"))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&blob, "blob", "", "the full `ID` of one content, in place of a path")
	f.BoolVar(&ignore, "ignore", false, "take files on disk that hold such bytes out of the newest state, and never capture them again")
	f.BoolVar(&force, "force", false, "drop refs, worktrees and reflogs of people's own that lead to them")
	f.BoolVar(&dry, "dry-run", false, "only report what would be done")
	v.Connection.Flags(f)
	v.OutputFlags(f)
	cmd.RunE = v.Action(func(ctx context.Context, args []string) error {
		w, err := v.FindWorkspace(ctx, args[0])
		if err != nil {
			return err
		}
		body := map[string]any{"workspace": w.ID, "ignore": ignore, "force": force, "dry_run": dry}
		if blob != "" {
			body["blob"] = strings.TrimPrefix(blob, "git:")
		} else if err := purgePath(body, w, args[1]); err != nil {
			return err
		}
		bar := progress.Show("purging", v.Stderr)
		var done render.Purged
		answer, err := v.Client.Work(ctx, client.Request{Method: http.MethodPost, Path: "/upkeep/purge", Body: body}, func(p client.Progress) {
			if bar.Set != nil {
				bar.Set(int(p.Done), int(p.All))
			}
		}, &done)
		bar.Done()
		if err != nil {
			return refusedPurge(err)
		}
		if v.JSON {
			err = v.PrintJSON(answer)
		} else {
			err = v.Print(false, func(o *term.Output) error {
				render.Purge(o, &done)
				return nil
			})
		}
		if err == nil && (done.Refused || done.Remaining != nil) {
			return exitcode.With(exitcode.Failed)
		}
		return err
	})
	return cmd
}

func purgePath(body map[string]any, w client.Workspace, arg string) error {
	p, err := cli.PathIn(cli.PlaceOf(w), arg)
	if err != nil {
		return err
	}
	if p == "" {
		return exitcode.Usage(errors.New("PATH must be a file in the workspace"))
	}
	text, encoding := wspath.EncodeJSON(p)
	body["path"] = text
	if encoding != "" {
		body["path_encoding"] = encoding
	}
	return nil
}

// refusedPurge names all that is in the way.
func refusedPurge(err error) error {
	e, ok := errors.AsType[*client.Error](err)
	if !ok {
		return err
	}
	var held struct {
		Files []render.PurgedFile  `json:"files"`
		Held  []render.PurgeHolder `json:"held"`
	}
	if json.Unmarshal(e.Body, &held) != nil || len(held.Files)+len(held.Held) == 0 {
		return err
	}
	var b strings.Builder
	for _, f := range held.Files {
		fmt.Fprintf(&b, "\n  file      %s", f.Name())
	}
	for _, h := range held.Held {
		fmt.Fprintf(&b, "\n  %-8s  %s", h.Kind, term.Name(h.Name))
	}
	return fmt.Errorf("%w:%s", err, b.String())
}

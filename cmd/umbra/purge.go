package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"umbra/internal/client"
	"umbra/internal/term"
	"umbra/internal/wspath"
)

// purged is what a purge did, as the server tells it.
type purged struct {
	Workspace string        `json:"workspace"`
	DryRun    bool          `json:"dry_run"`
	Refused   bool          `json:"refused"`
	Blobs     []string      `json:"blobs"`
	Names     []purgedFile  `json:"names"`
	Commits   uint64        `json:"commits"`
	Touched   uint64        `json:"touched"`
	First     uint64        `json:"first"`
	Bytes     int64         `json:"bytes"`
	Files     []purgedFile  `json:"files"`
	Held      []purgeHolder `json:"held"`
	Dropped   []purgeHolder `json:"dropped"`
	Foreign   []string      `json:"foreign"`
	Clones    []struct {
		Who  *string `json:"who"`
		From string  `json:"from"`
		What string  `json:"what"`
		Last string  `json:"last"`
	} `json:"clones"`
}

type purgedFile struct {
	Path     string `json:"path"`
	Encoding string `json:"path_encoding"`
}

func (f purgedFile) name() string { return term.Name(client.Bytes(f.Path, f.Encoding)) }

type purgeHolder struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

func purgeCommand() *cobra.Command {
	v := &verb{}
	var blob string
	var ignore, force, dry bool
	cmd := &cobra.Command{
		Use:   "purge WS PATH | WS --blob ID",
		Short: "Remove a secret from a workspace's whole history",
		Long: `Take out of all history every content that PATH had, by all names that recorded
renames gave the file, but the one now on disk; or the one content whose blob ID is.
In every commit the bytes become the blob "purged"; all later commits get other
ids. The server answers old ids with the new ones. When the command returns the
bytes are off the disk, also from packs that people made in the repository.

It refuses while a file on disk holds such bytes under any name, unless --ignore
takes these files out of the newest state and lists them in the workspace's exclude
file (they stay on disk); and while refs, worktrees or reflogs of people's own lead
to them, unless --force drops these.

Scratch, artifacts, earlier backups and clones are not reached. Change the secret
first: who has a clone has it.

The exit status is 1 if it refuses, or if the path or blob never was.`,
		Example: `  umbra purge . config/secrets.env --dry-run
  umbra purge . config/secrets.env
  umbra purge . --blob 3b18e512dba79e4c8300dd08aeb37f8e728b8dad`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case blob == "" && len(args) != 2:
				return usageError{errors.New("a workspace WS and a PATH in it are needed, or WS and --blob ID")}
			case blob != "" && len(args) != 1:
				return usageError{errors.New("with --blob only the workspace WS is named")}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&blob, "blob", "", "the full `ID` of one content, in place of a path")
	f.BoolVar(&ignore, "ignore", false, "take files on disk that hold such bytes out of the newest state, and never capture them again")
	f.BoolVar(&force, "force", false, "drop refs, worktrees and reflogs of people's own that lead to them")
	f.BoolVar(&dry, "dry-run", false, "only report what would be done")
	v.connection.flags(f)
	v.outputFlags(f)
	cmd.RunE = v.action(func(ctx context.Context, args []string) error {
		w, err := v.findWorkspace(ctx, args[0])
		if err != nil {
			return err
		}
		body := map[string]any{"workspace": w.ID, "ignore": ignore, "force": force, "dry_run": dry}
		if blob != "" {
			body["blob"] = strings.TrimPrefix(blob, "git:")
		} else if err := purgePath(body, w, args[1]); err != nil {
			return err
		}
		bar := showProgress("purging", v.stderr)
		var done purged
		answer, err := v.client.Work(ctx, client.Request{Method: http.MethodPost, Path: "/upkeep/purge", Body: body}, func(p client.Progress) {
			if bar.tell != nil {
				bar.tell(int(p.Done), int(p.All))
			}
		}, &done)
		bar.done()
		if err != nil {
			return refusedPurge(err)
		}
		if v.json {
			err = v.printJSON(answer)
		} else {
			err = v.print(false, func(o *term.Output) error {
				writePurged(o, &done)
				return nil
			})
		}
		if err == nil && done.Refused {
			return exitError{exitFailed}
		}
		return err
	})
	return cmd
}

func purgePath(body map[string]any, w client.Workspace, arg string) error {
	p, err := pathIn(placeOf(w), arg)
	if err != nil {
		return err
	}
	if p == "" {
		return usageError{errors.New("PATH must be a file in the workspace")}
	}
	text, encoding := wspath.EncodeJSON(p)
	body["path"] = text
	if encoding != "" {
		body["path_encoding"] = encoding
	}
	return nil
}

// refusedPurge names all that stands in the way.
func refusedPurge(err error) error {
	e, ok := errors.AsType[*client.Error](err)
	if !ok {
		return err
	}
	var held struct {
		Files []purgedFile  `json:"files"`
		Held  []purgeHolder `json:"held"`
	}
	if json.Unmarshal(e.Body, &held) != nil || len(held.Files)+len(held.Held) == 0 {
		return err
	}
	var b strings.Builder
	for _, f := range held.Files {
		fmt.Fprintf(&b, "\n  file      %s", f.name())
	}
	for _, h := range held.Held {
		fmt.Fprintf(&b, "\n  %-8s  %s", h.Kind, term.Name(h.Name))
	}
	return fmt.Errorf("%w:%s", err, b.String())
}

func writePurged(o *term.Output, p *purged) {
	verb := "purged"
	if p.DryRun {
		verb = "would be purged"
	}
	o.Printf("%s %s: %s had such bytes, %s from number %d on %s another id\n", count(len(p.Blobs), "content", "contents"), verb,
		count(int(p.Touched), "commit", "commits"), count(int(p.Commits), "commit", "commits"), p.First, map[bool]string{true: "would get", false: "got"}[p.DryRun])
	for _, n := range p.Names {
		o.Printf("  name      %s\n", n.name())
	}
	for _, b := range p.Blobs {
		o.Printf("  content   %s\n", b)
	}
	for _, f := range p.Files {
		word := "ignored"
		if p.Refused {
			word = "on disk"
		}
		o.Printf("  %-8s  %s\n", word, f.name())
	}
	for _, h := range p.Held {
		o.Printf("  %s  %s %s\n", o.Paint(term.Removed, "in the way"), h.Kind, term.Name(h.Name))
	}
	for _, h := range p.Dropped {
		o.Printf("  dropped   %s %s\n", h.Kind, term.Name(h.Name))
	}
	for _, f := range p.Foreign {
		o.Printf("  dropped   %s\n", term.Name(f))
	}
	if p.Refused {
		o.Printf("It would be refused: see --ignore and --force.\n")
	}
	o.Printf("Not reached: scratch, artifacts, earlier backups, clones.\n")
	for _, c := range p.Clones {
		who := "unknown"
		if c.Who != nil {
			who = *c.Who
		}
		o.Printf("  %-8s  %s from %s, last %s\n", c.What, term.Line(who), term.Line(c.From), c.Last)
	}
}

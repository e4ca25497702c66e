package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"

	"umbra/internal/cli"
	"umbra/internal/client"
	"umbra/internal/exitcode"
	"umbra/internal/render"
	"umbra/internal/term"
)

// pathAtCommit splits PATH@COMMIT. An argument that is a directory on disk, such
// as a backup's, is none.
func pathAtCommit(arg string) (path, commit string, ok bool) {
	i := strings.LastIndexByte(arg, '@')
	if i <= 0 || !commitForm.MatchString(arg[i+1:]) {
		return "", "", false
	}
	if info, err := os.Stat(arg); err == nil && info.IsDir() {
		return "", "", false
	}
	return arg[:i], arg[i+1:], true
}

// restorePath brings a file or directory back to its state at a commit.
func (v *verb) restorePath(ctx context.Context, path, commit string, dryRun bool) error {
	w, err := v.PickWorkspace(ctx)
	if err != nil {
		return err
	}
	body := map[string]any{"to": commit, "dry_run": dryRun}
	paths, encoding, err := cli.EncodePaths(w, []string{path})
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return exitcode.Usage(errors.New("name a file or directory in the workspace, not its root"))
	}
	body["paths"] = paths
	if encoding != "" {
		body["path_encoding"] = encoding
	}
	var done client.Reverted
	raw, err := v.Client.JSON(ctx, client.Request{Method: http.MethodPost, Path: client.Path("workspaces", w.ID, "restore"), Body: body}, &done)
	if err != nil {
		return err
	}
	return v.Answer(raw, func(o *term.Output) {
		for _, f := range done.Files {
			o.Printf("%-9s %s\n", f.Action, term.Name(client.Bytes(f.Path, f.Encoding)))
		}
		switch {
		case len(done.Files) == 0:
			o.Printf("nothing to restore\n")
		case dryRun:
			o.Printf("would restore %s\n", render.Count(len(done.Files), "file", "files"))
		case done.Commit != nil:
			o.Printf("%s restored in %s\n", render.Count(len(done.Files), "file", "files"), o.Paint(term.Commit, "commit "+render.Short(*done.Commit)))
		}
	})
}

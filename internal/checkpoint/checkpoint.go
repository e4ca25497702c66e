// Package checkpoint names moments of a workspace's history: by annotated tags
// refs/tags/umbra/<name> of the shadow repository, which stock git lists and which
// keep what they name from being dropped.
package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/gitcmd"
	"umbra/internal/history"
	"umbra/internal/workspace"
)

// Checkpoint is a named moment.
type Checkpoint struct {
	Name    string
	Message string
	Actor   string
	Commit  object.ID
	At      time.Time // when it was made
}

const prefix = "refs/tags/umbra/"

// maxMessage bounds a checkpoint's message, in bytes.
const maxMessage = 4096

// ValidName reports whether a name can be a checkpoint's: formed as a task id, without a
// dot at its end, which git refuses, and neither "head" nor a commit's id.
func ValidName(name string) bool {
	_, err := object.ParseID(name)
	return message.ValidTaskID(name) && !strings.HasSuffix(name, ".") && name != "head" && err != nil
}

func run(ctx context.Context, w *workspace.Workspace, in io.Reader, args ...string) (string, error) {
	cmd, err := gitcmd.Command(ctx, w.GitDir(), args...)
	if errors.Is(err, gitcmd.ErrMissing) {
		return "", errs.New(errs.Unavailable, "git_missing", "git is not installed on this machine.")
	}
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout = in, &out
	err = gitcmd.Run(cmd)
	return out.String(), err
}

// Make names the newest commit, once what is on disk is recorded and stock git sees
// it. Invalid "invalid_name", "invalid_message"; Conflict "checkpoint_exists"; Forbidden
// "policy_refused".
func Make(ctx context.Context, w *workspace.Workspace, name, text, actor string) (*Checkpoint, error) {
	if !ValidName(name) {
		return nil, errs.New(errs.Invalid, "invalid_name", "A checkpoint's name is formed as a task id, and is neither \"head\" nor a commit's id.").With("field", "name")
	}
	if text = message.CleanText(text); len(text) > maxMessage {
		return nil, errs.New(errs.Invalid, "invalid_message", "The message is longer than %d bytes.", maxMessage).With("field", "message")
	}
	if x := w.Policy().Message(name + "\n" + text); x != nil && !w.Policy().Only(x) {
		return nil, x.Err()
	}
	taken := errs.New(errs.Conflict, "checkpoint_exists", "There is a checkpoint of that name.").With("field", "name")
	if _, err := find(ctx, w, name); err == nil {
		return nil, taken
	}
	if _, err := w.Sync(ctx, workspace.SyncOptions{Attribute: true}); err != nil {
		return nil, err
	}
	tip := w.Store().Tip()
	if tip.Commit.IsZero() {
		return nil, errs.New(errs.Conflict, "no_commit", "The workspace has no commit yet.")
	}
	if text == "" {
		text = "checkpoint " + name
	}
	who, mail := message.Author(actor)
	now := time.Now().UTC().Truncate(time.Second)
	tag := "object " + tip.Commit.String() + "\ntype commit\ntag umbra/" + name + "\ntagger " + who + " <" + mail + "> " + strconv.FormatInt(now.Unix(), 10) + " +0000\n\n" + text + "\n"
	id, err := run(ctx, w, strings.NewReader(tag), "mktag")
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	// A ref that exists has another value than none.
	if _, err := run(ctx, w, nil, "update-ref", "--no-deref", prefix+name, strings.TrimSpace(id), object.Zero.String()); err != nil {
		if _, there := find(ctx, w, name); there == nil {
			return nil, taken
		}
		return nil, errs.Wrap(err, "")
	}
	return &Checkpoint{Name: name, Message: text, Actor: actor, Commit: tip.Commit, At: now}, nil
}

const format = "%(refname)%00%(objecttype)%00%(objectname)%00%(*objectname)%00%(taggername)%00%(taggerdate:unix)%00%(contents)%00%00"

// List gives all checkpoints, by name.
func List(ctx context.Context, w *workspace.Workspace) ([]Checkpoint, error) {
	out, err := run(ctx, w, nil, "for-each-ref", "--format="+format, prefix)
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	var list []Checkpoint
	for row := range strings.SplitSeq(out, "\x00\x00\n") {
		f := strings.Split(row, "\x00")
		if len(f) < 7 {
			continue
		}
		c := Checkpoint{Name: strings.TrimPrefix(f[0], prefix), Actor: f[4], Message: strings.TrimRight(f[6], "\n")}
		id := f[3]
		if f[1] == "commit" { // a user's own, without a message
			id = f[2]
		}
		if c.Commit, err = object.ParseID(id); err != nil {
			continue
		}
		if c.Actor == message.ServerName {
			c.Actor = ""
		}
		if sec, err := strconv.ParseInt(f[5], 10, 64); err == nil {
			c.At = time.Unix(sec, 0).UTC()
		}
		list = append(list, c)
	}
	return list, nil
}

// Delete takes a checkpoint away; the history stays. NotFound
// "checkpoint_not_found".
func Delete(ctx context.Context, w *workspace.Workspace, name string) error {
	if _, err := find(ctx, w, name); err != nil {
		return err
	}
	_, err := run(ctx, w, nil, "update-ref", "--no-deref", "-d", prefix+name)
	return errs.Wrap(err, "")
}

func find(ctx context.Context, w *workspace.Workspace, name string) (object.ID, error) {
	missing := errs.New(errs.NotFound, "checkpoint_not_found", "The checkpoint does not exist.")
	if !ValidName(name) {
		return object.Zero, missing
	}
	out, err := run(ctx, w, nil, "rev-parse", "--verify", "--quiet", prefix+name+"^{commit}")
	if err != nil {
		return object.Zero, missing
	}
	id, err := object.ParseID(strings.TrimSpace(out))
	if err != nil {
		return object.Zero, missing
	}
	return id, nil
}

// Resolve gives the commit that a name represents: a checkpoint's, "head" or a
// commit's id (history.Find), or a time (RFC 3339): the newest commit that was made
// until then.
func Resolve(ctx context.Context, w *workspace.Workspace, name string) (*gitstore.Commit, error) {
	if at, err := time.Parse(time.RFC3339, name); err == nil {
		return until(ctx, w.Store(), at)
	}
	if !ValidName(name) {
		return history.Find(ctx, w.Store(), name)
	}
	if id, err := find(ctx, w, name); err == nil {
		return w.Store().ReadCommit(ctx, id)
	}
	return history.Find(ctx, w.Store(), name)
}

// until finds the newest commit that was made until a time.
func until(ctx context.Context, st *gitstore.Store, at time.Time) (*gitstore.Commit, error) {
	var found object.ID
	err := st.Records(ctx, 1, st.Tip().Seq, func(r gitstore.Record) error {
		if r.WhenUnix <= at.Unix() {
			found = r.Commit
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if found.IsZero() {
		return nil, errs.New(errs.NotFound, "commit_not_found", "The workspace's history begins later.")
	}
	return st.ReadCommit(ctx, found)
}

package toolset

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"umbra/gitstore/diff"
	"umbra/gitstore/message"
	"umbra/internal/blame"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/toolset/mount"
	"umbra/internal/toolset/tool"
	"umbra/internal/workspace"
)

// explainLine shows which change wrote a line.
func (r *run) explainLine(a tool.Args) (string, error) {
	at, err := r.resolve(a.Str("path"), mount.Read)
	if err != nil {
		return "", err
	}
	o, err := r.own(at.Mount)
	if err != nil {
		return "", err
	}
	if err := o.ws.RecordThen(r.ctx, func() {}); err != nil && errs.CodeOf(err) != "workspace_missing" {
		return "", explain(err, at.Path)
	}
	line := int(a.Int("line", 1))
	res, err := r.s.o.Blame.Lines(r.ctx, o.ws, blame.Request{Path: at.rel, At: o.ws.Store().Tip().Commit, From: line, To: line, Project: true})
	if err != nil {
		if e, ok := errors.AsType[*errs.Error](err); ok && (e.Code == "not_text" || e.Code == "invalid_parameter") {
			return "", mount.Message(mount.Show(at.Path) + ": " + e.Detail)
		}
		return "", explain(err, at.Path)
	}
	if len(res.Ranges) == 0 {
		return "", mount.Message(mount.Show(at.Path) + " is empty")
	}
	x := &res.Ranges[0]
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d is from commit %s of %s.\n", mount.Show(at.Path), line, x.Commit.String()[:12], x.At.UTC().Format(time.RFC3339))
	say := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	say("Agent", x.Agent)
	say("Model", x.Model)
	say("Tool", x.Tool)
	say("Task", x.Task)
	if t, ok := o.ws.Store().Task(x.Task); ok && x.Task != "" {
		say("Goal", t.Info.Goal)
	}
	say("Subtask", x.Subtask)
	say("Actor", x.Actor)
	say("Certainty", x.Certainty)
	say("Source", x.Source)
	if !x.Via.IsZero() {
		say("Brought back by", "the revert "+x.Via.String()[:12])
	}
	if p := x.Project; p != nil {
		say("In the project", "commit "+p.Commit+" by "+p.Author)
	}
	if x.Source != string(message.Baseline) {
		text, err := r.changeOf(&o, x)
		if err != nil {
			return "", err
		}
		if room := maxText - b.Len(); len(text) > room {
			text = text[:strings.LastIndexByte(text[:room], '\n')+1] + "[cut: the diff goes on]\n"
		}
		b.WriteString("\n" + text)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// changeOf returns the diff that a range's commit made of its file.
func (r *run) changeOf(o *own, x *blame.Range) (string, error) {
	entries, err := o.ws.EntriesAt(r.ctx, x.Commit)
	if err != nil {
		return "", err
	}
	var of []workspace.ChangeEntry
	for _, e := range entries {
		if e.NewPath == x.OriginPath || e.NewPath == "" && e.Path == x.OriginPath {
			of = append(of, e)
		}
	}
	var out diff.Series
	for _, p := range history.PairsOf(of) {
		old, now, err := p.Sides(r.ctx, o.ws.Store(), maxDiffed)
		if errs.Is(err, errs.TooLarge) {
			return "The change is too large to be shown.\n", nil
		}
		if err != nil {
			return "", err
		}
		for _, side := range []*diff.File{&old, &now} {
			if side.Path != "" {
				side.Path = strings.TrimPrefix(mount.Join(o.prefix, side.Path), "/")
			}
		}
		patch, err := diff.Format(old, now, diff.Options{Abbrev: 7, MaxBinary: 1})
		if err != nil {
			return "", err
		}
		out.Add(patch)
	}
	return strings.ToValidUTF8(string(out.Bytes()), "\uFFFD"), nil
}

package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"

	"umbra/internal/errs"
	"umbra/internal/exitcode"
	"umbra/internal/progress"
	"umbra/internal/term"
	"umbra/internal/workspaces"
)

// Welcome is printed for the user once the server is ready, on standard error,
// after the ready line.
type Welcome struct {
	Address string // as the ready line has it
	tokens  bool
	id      string // the workspace that was opened at the start; else empty
	folder  string
}

// Base is the URL that a program on this machine calls; empty for a socket.
func (g Welcome) Base() string {
	u, err := url.Parse(g.Address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsUnspecified() {
		// It listens everywhere; a client has to call it by one name.
		u.Host = net.JoinHostPort("127.0.0.1", u.Port())
		if ip.To4() == nil {
			u.Host = net.JoinHostPort("::1", u.Port())
		}
	}
	return u.String()
}

// places are the addresses, each with what is found there.
func (g Welcome) places() [][2]string {
	base := g.Base()
	if base == "" {
		return nil
	}
	return [][2]string{{"ui", base + "/"}, {"api", base + "/docs"}, {"mcp", base + "/mcp"}, {"git", base + "/git/"}}
}

// curl is a command that works as it is: it starts a task on the folder, or
// lists what there is.
func (g Welcome) curl() string {
	words := []string{"curl -s"}
	base := g.Base()
	if path, isUnix := strings.CutPrefix(g.Address, "unix:"); isUnix {
		words = append(words, "--unix-socket", term.ShellWord(path))
		base = "http://localhost"
	}
	if g.tokens {
		words = append(words, `-H "Authorization: Bearer $UMBRA_TOKEN"`)
	}
	if g.folder == "" {
		return strings.Join(append(words, term.ShellWord(base+"/workspaces")), " ")
	}
	body, err := json.Marshal(map[string]string{"goal": "my first task", "workspace": g.folder})
	if err != nil {
		return strings.Join(append(words, term.ShellWord(base+"/workspaces/"+g.id)), " ")
	}
	return strings.Join(append(words, term.ShellWord(base+"/tasks"), "-H 'Content-Type: application/json' -d", term.ShellWord(string(body))), " ")
}

// text is for people: a log of plain text goes on after it.
func (g Welcome) text() string {
	var b strings.Builder
	b.WriteByte('\n')
	line := func(name, text string) { fmt.Fprintf(&b, "  %-10s %s\n", name, text) }
	names := map[string]string{"ui": "web UI", "api": "API", "mcp": "MCP", "git": "git"}
	for _, p := range g.places() {
		line(names[p[0]], p[1])
	}
	if path, isUnix := strings.CutPrefix(g.Address, "unix:"); isUnix {
		line("socket", term.Name(path))
	}
	if g.id != "" {
		line("workspace", g.id+"  "+term.Name(g.folder))
		if base := g.Base(); base != "" {
			line("", base+"/git/"+g.id+".git")
		}
	}
	line("try", g.curl())
	if g.id == "" && g.Base() != "" {
		line("or", "umbra demo")
	}
	b.WriteByte('\n')
	return b.String()
}

// log is for programs that read the log as JSON.
func (g Welcome) log(log *slog.Logger) {
	var attrs []any
	for _, p := range g.places() {
		attrs = append(attrs, p[0], p[1])
	}
	if g.id != "" {
		attrs = append(attrs, "workspace", g.id, "folder", g.folder)
	}
	log.Info("ready", append(attrs, "try", g.curl())...)
}

// openAtOnce makes a folder a workspace, or opens the one that it is: what is in
// it is recorded first, with a count on a terminal.
func openAtOnce(ctx context.Context, m *workspaces.Manager, folder string, stderr io.Writer) (id, root string, err error) {
	bar := progress.ShowCount("recording "+term.Name(folder), stderr)
	// By the owner's own hand: the roots are about clients.
	w, warnings, err := m.Open(ctx, folder, workspaces.OpenOptions{Own: true, Progress: bar.Set})
	bar.Done()
	if err != nil {
		e, ok := errors.AsType[*errs.Error](err)
		if ok && (e.Kind == errs.Invalid || e.Kind == errs.Conflict || e.Kind == errs.Forbidden) {
			return "", "", exitcode.Usage(fmt.Errorf("%s: %s (%s)", term.Name(folder), strings.TrimSuffix(e.Detail, "."), cmp.Or(e.Code, e.Kind.String())))
		}
		return "", "", err
	}
	defer w.Release()
	for _, text := range warnings {
		fmt.Fprintln(stderr, "umbra:", term.Line(text))
	}
	return w.ID(), w.Root(), nil
}

// Command dist makes what is released: archives for Linux and macOS, Debian
// packages, a container image, an SBOM for each system, and their checksums. The
// same sources make the same bytes.
//
//	dist -root ../.. -version v1.2.3 -out ../../bin/dist -umbra ../../bin/umbra
//	dist -root ../.. licenses
//
// It needs the Go tool chain and git, and no daemon.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// released are the systems that archives are made for.
var released = []system{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

// release is a run of the program.
type release struct {
	root    string // of the sources
	out     string // directory that is written
	version string
	when    time.Time // of every file in it: that of the commit
	umbra   string    // a program for this machine, which writes completions and manual pages
	systems []system
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	fs := flag.NewFlagSet("dist", flag.ContinueOnError)
	r := release{}
	fs.StringVar(&r.root, "root", ".", "the sources")
	fs.StringVar(&r.out, "out", "bin/dist", "the directory to write; what is in it is removed")
	fs.StringVar(&r.version, "version", "dev", "the version")
	fs.StringVar(&r.umbra, "umbra", "bin/umbra", "the program for this machine, of the same sources")
	only := fs.String("systems", "", "only these systems: OS/ARCH, with commas between")
	if err := fs.Parse(args); err != nil {
		return err
	}
	switch fs.Arg(0) {
	case "licenses":
		return writeLicenses(r.root, released)
	case "":
	default:
		return fmt.Errorf("unknown command %q", fs.Arg(0))
	}
	var err error
	if r.systems, err = parseSystems(*only); err != nil {
		return err
	}
	if r.when, err = commitTime(r.root); err != nil {
		return err
	}
	for _, p := range []*string{&r.root, &r.out, &r.umbra} {
		if *p, err = filepath.Abs(*p); err != nil {
			return err
		}
	}
	return r.make()
}

func parseSystems(list string) ([]system, error) {
	if list == "" {
		return released, nil
	}
	var out []system
	for _, s := range strings.Split(list, ",") {
		system := system{}
		var ok bool
		if system.os, system.arch, ok = strings.Cut(s, "/"); !ok {
			return nil, fmt.Errorf("-systems is OS/ARCH, not %q", s)
		}
		out = append(out, system)
	}
	return out, nil
}

// commitTime returns when the sources were committed; $SOURCE_DATE_EPOCH wins.
func commitTime(root string) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		cmd := exec.Command("git", "log", "-1", "--format=%ct")
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("git log: %w", err)
		}
		text = strings.TrimSpace(string(out))
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(n, 0).UTC(), err
}

// make builds and packs everything.
func (r *release) make() error {
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o777); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "umbra-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	docs, err := r.documents(work)
	if err != nil {
		return err
	}
	programs := map[system]string{}
	for _, s := range r.systems {
		fmt.Fprintf(os.Stderr, "%s/%s\n", s.os, s.arch)
		program := filepath.Join(work, s.os+"-"+s.arch, "umbra")
		if err := r.build(s, program); err != nil {
			return err
		}
		programs[s] = program
	}
	return r.pack(programs, docs, work)
}

// build compiles the program for a system, as the Makefile does for this one.
func (r *release) build(s system, to string) error {
	cmd := exec.Command("go", "build", "-tags", "nomsgpack", "-trimpath", "-ldflags", "-s -w -X umbra/internal/buildinfo.version="+r.version, "-o", to, "./cmd/umbra")
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+s.os, "GOARCH="+s.arch, "GOFLAGS=")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build for %s/%s: %w", s.os, s.arch, err)
	}
	return nil
}

// documents are the files that go with every program, by their place below an
// installation's prefix.
func (r *release) documents(work string) ([]file, error) {
	var list []file
	man := filepath.Join(work, "man")
	if err := os.Mkdir(man, 0o777); err != nil {
		return nil, err
	}
	if _, err := r.say("man", man); err != nil {
		return nil, err
	}
	pages, err := os.ReadDir(man)
	if err != nil {
		return nil, err
	}
	for _, p := range pages {
		raw, err := os.ReadFile(filepath.Join(man, p.Name()))
		if err != nil {
			return nil, err
		}
		list = append(list, file{name: "share/man/man1/" + p.Name(), data: raw})
	}
	if len(list) == 0 {
		return nil, errors.New("there are no manual pages")
	}
	for shell, name := range map[string]string{
		"bash": "share/bash-completion/completions/umbra", "zsh": "share/zsh/site-functions/_umbra", "fish": "share/fish/vendor_completions.d/umbra.fish",
	} {
		raw, err := r.say("completion", shell)
		if err != nil {
			return nil, err
		}
		list = append(list, file{name: name, data: raw})
	}
	for name, from := range map[string]string{
		"LICENSE": "LICENSE", "NOTICE": "NOTICE", "README.md": "README.md", "CHANGELOG.md": "CHANGELOG.md",
		"LICENSES.txt": "internal/licenses/texts.txt", "config.yaml": "config.yaml", "umbra.service": "docs/umbra.service",
	} {
		raw, err := os.ReadFile(filepath.Join(r.root, from))
		if err != nil {
			return nil, err
		}
		list = append(list, file{name: "share/doc/umbra/" + name, data: raw})
	}
	return sorted(list), nil
}

// say runs the program for this machine and returns what it prints.
func (r *release) say(args ...string) ([]byte, error) {
	cmd := exec.Command(r.umbra, args...)
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("umbra %s: %w: %s", strings.Join(args, " "), err, problem.Bytes())
	}
	return out, nil
}

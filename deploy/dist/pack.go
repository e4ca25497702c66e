package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

// file is a file, or a directory, of an archive.
type file struct {
	name  string
	data  []byte
	mode  int64 // 0: 0644
	owner int
	dir   bool
}

func sorted(list []file) []file {
	slices.SortFunc(list, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	return list
}

// pack writes everything into the output directory.
func (r *release) pack(programs map[system]string, docs []file, work string) error {
	for _, s := range r.systems {
		program, err := os.ReadFile(programs[s])
		if err != nil {
			return err
		}
		if err := r.archive(s, program, docs); err != nil {
			return err
		}
		if err := r.writeSBOM(s, programs[s]); err != nil {
			return err
		}
		if s.os == "linux" {
			if err := r.debian(s, program, docs, filepath.Join(work, "deb-"+s.arch)); err != nil {
				return err
			}
		}
	}
	if err := r.image(programs, docs, filepath.Join(work, "image")); err != nil {
		return err
	}
	return r.checksums()
}

func (r *release) name(s system) string {
	return fmt.Sprintf("umbra-%s-%s-%s", r.version, s.os, s.arch)
}

// archive writes a .tar.gz of one directory. It has the layout of a prefix such as
// /usr/local; LICENSE, NOTICE and README.md are at its top, too.
func (r *release) archive(s system, program []byte, docs []file) error {
	list := []file{{name: "bin/umbra", data: program, mode: 0o755}}
	for _, f := range docs {
		list = append(list, f)
		switch base := path.Base(f.name); base {
		case "LICENSE", "NOTICE", "README.md":
			f.name = base
			list = append(list, f)
		}
	}
	for i := range list {
		list[i].name = r.name(s) + "/" + list[i].name
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := writeTar(z, sorted(list), r.when); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return r.write(r.name(s)+".tar.gz", b.Bytes())
}

func (r *release) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), data, 0o666)
}

// writeTar writes files with what is not in them at fixed values, and the
// directories above them once.
func writeTar(w io.Writer, list []file, when time.Time) error {
	t := tar.NewWriter(w)
	made := map[string]bool{".": true}
	for _, f := range list {
		if f.dir {
			made[f.name] = true
		}
	}
	var mkdir func(dir string) error
	mkdir = func(dir string) error {
		if made[dir] {
			return nil
		}
		made[dir] = true
		if err := mkdir(path.Dir(dir)); err != nil {
			return err
		}
		return t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: when, Format: tar.FormatUSTAR})
	}
	for _, f := range list {
		if err := mkdir(path.Dir(f.name)); err != nil {
			return err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.data)), Mode: cmp.Or(f.mode, 0o644), ModTime: when, Uid: f.owner, Gid: f.owner, Format: tar.FormatUSTAR}
		if f.dir {
			h.Typeflag, h.Name, h.Mode = tar.TypeDir, f.name+"/", cmp.Or(f.mode, 0o755)
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.data); err != nil {
			return err
		}
	}
	return t.Close()
}

var (
	number = regexp.MustCompile(`^v?[0-9]`)
	early  = regexp.MustCompile(`-(alpha|beta|pre|rc)`)
)

// debianVersion is the version as Debian orders them: it begins with a digit, what
// is before a release sorts before it, and commits after a release sort after it.
func (r *release) debianVersion() string {
	if number.MatchString(r.version) {
		v := early.ReplaceAllString(strings.TrimPrefix(r.version, "v"), "~$1")
		return strings.ReplaceAll(v, "-", "+")
	}
	return "0~" + r.when.Format("20060102150405") + "." + strings.ReplaceAll(r.version, "-", "+")
}

// debian writes a .deb.
func (r *release) debian(s system, program []byte, docs []file, work string) error {
	list := []file{{name: "usr/bin/umbra", data: program, mode: 0o755}}
	var rights bytes.Buffer
	for _, f := range docs {
		base := path.Base(f.name)
		switch {
		case strings.HasPrefix(f.name, "share/man/"):
			packed, err := gzipped(f.data)
			if err != nil {
				return err
			}
			list = append(list, file{name: "usr/" + f.name + ".gz", data: packed})
		case base == "_umbra":
			list = append(list, file{name: "usr/share/zsh/vendor-completions/_umbra", data: f.data})
		case base == "NOTICE", base == "LICENSE", base == "LICENSES.txt":
			// Debian's one file for it; the program has the texts as well.
			fmt.Fprintf(&rights, "%s\n\n", bytes.TrimSpace(f.data))
			if base != "LICENSES.txt" {
				list = append(list, file{name: "usr/" + f.name, data: f.data})
			}
		case base == "config.yaml", base == "umbra.service":
			list = append(list, file{name: "usr/share/doc/umbra/examples/" + base, data: f.data})
		default:
			list = append(list, file{name: "usr/" + f.name, data: f.data})
		}
	}
	list = append(list, file{name: "usr/share/doc/umbra/copyright", data: rights.Bytes()})
	var contents files.Contents
	for _, f := range sorted(list) {
		from := filepath.Join(work, filepath.FromSlash(f.name))
		if err := os.MkdirAll(filepath.Dir(from), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(from, f.data, 0o666); err != nil {
			return err
		}
		contents = append(contents, &files.Content{Source: from, Destination: "/" + f.name, Type: files.TypeFile,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: os.FileMode(cmp.Or(f.mode, 0o644)), MTime: r.when}})
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "umbra", Arch: s.arch, Platform: "linux", Version: r.debianVersion(), VersionSchema: "none", Section: "vcs", Priority: "optional",
		Maintainer: "The umbra authors <umbra@localhost>", License: "Apache-2.0", MTime: r.when,
		Description: "Records what AI agents change, and undoes one agent's work alone\nA workspace server whose every change is a git commit with its task, subtask\nand agent.",
		Overridables: nfpm.Overridables{
			Recommends: []string{"git", "ca-certificates"}, Contents: contents, Deb: nfpm.Deb{Compression: "gzip"},
		},
	})
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := deb.Default.Package(info, &b); err != nil {
		return err
	}
	return r.write(fmt.Sprintf("umbra_%s_%s.deb", r.debianVersion(), s.arch), b.Bytes())
}

func gzipped(data []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(data); err != nil {
		return nil, err
	}
	err = z.Close()
	return b.Bytes(), err
}

// checksums writes SHA256SUMS, which sha256sum -c reads.
func (r *release) checksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(raw), e.Name())
	}
	return r.write("SHA256SUMS", b.Bytes())
}

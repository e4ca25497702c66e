package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// component is a part of the program that others have written.
type component struct {
	name, version string
	npm           bool
	dirs          []string // where its license files are
}

// system is an operating system and processor.
type system struct{ os, arch string }

// licenseFile matches the names of files that have to go with the program.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|unlicense)([-._].*)?$`)

// goComponents lists the Go modules in the program on a system.
func goComponents(root string, s system) ([]component, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=Dir,Standard,Module", "./cmd/umbra")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+s.os, "GOARCH="+s.arch)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	byName := map[string]*component{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir    string
			Module *struct {
				Path, Version, Dir string
				Main               bool
				Replace            *struct{ Path string }
			}
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		m := p.Module
		if m == nil || m.Main {
			continue
		}
		if m.Replace != nil {
			return nil, fmt.Errorf("%s is replaced: its license is another's", m.Path)
		}
		c := byName[m.Path]
		if c == nil {
			c = &component{name: m.Path, version: m.Version}
			byName[m.Path] = c
		}
		// A package's directory and those above it, down from the module's.
		for dir := p.Dir; ; dir = filepath.Dir(dir) {
			if !slices.Contains(c.dirs, dir) {
				c.dirs = append(c.dirs, dir)
			}
			if dir == m.Dir || len(dir) < len(m.Dir) {
				break
			}
		}
	}
	var list []component
	for _, c := range byName {
		list = append(list, *c)
	}
	return list, nil
}

// npmComponents lists the packages that a lock file has for production.
func npmComponents(root, folder string) ([]component, error) {
	raw, err := os.ReadFile(filepath.Join(root, folder, "package-lock.json"))
	if err != nil {
		return nil, err
	}
	var lock struct {
		Packages map[string]struct {
			Version string
			Dev     bool
		}
	}
	if err := json.Unmarshal(raw, &lock); err != nil {
		return nil, err
	}
	var list []component
	for place, p := range lock.Packages {
		at := strings.LastIndex(place, "node_modules/")
		if at < 0 || p.Dev {
			continue
		}
		name := place[at+len("node_modules/"):]
		if strings.HasPrefix(name, "@types/") { // types are not in the bundle
			continue
		}
		list = append(list, component{name: name, version: p.Version, npm: true, dirs: []string{filepath.Join(root, folder, place)}})
	}
	return list, nil
}

// npmFolders are the folders of packages that are put into the program.
var npmFolders = []string{"httpapi/ui/web", "internal/sandbox/luau/npm"}

// components lists all that is in the program, sorted by name.
func components(root string, systems []system) ([]component, error) {
	var all []component
	for _, s := range systems {
		list, err := goComponents(root, s)
		if err != nil {
			return nil, err
		}
		for _, c := range list {
			if i := slices.IndexFunc(all, func(x component) bool { return x.name == c.name }); i < 0 {
				all = append(all, c)
			} else {
				all[i].dirs = append(all[i].dirs, c.dirs...)
			}
		}
	}
	for _, folder := range npmFolders {
		list, err := npmComponents(root, folder)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	slices.SortFunc(all, func(a, b component) int { return cmp.Compare(a.name, b.name) })
	return all, nil
}

// writeLicenses writes the texts that `umbra licenses` prints. Equal texts are
// written once.
func writeLicenses(root string, systems []system) error {
	list, err := components(root, systems)
	if err != nil {
		return err
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	list = slices.Insert(list, 0, component{name: "umbra", dirs: []string{root}},
		component{name: "std", dirs: []string{strings.TrimSpace(string(goroot))}})
	for i, c := range list {
		// A package that has no license file in it.
		if dir := filepath.Join(root, "deploy/dist/texts", c.name); isDir(dir) {
			list[i].dirs = append(list[i].dirs, dir)
		}
	}
	heads := map[string][]string{}
	var texts []string
	for _, c := range list {
		found := false
		slices.Sort(c.dirs)
		for _, dir := range slices.Compact(c.dirs) {
			entries, err := os.ReadDir(dir)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if e.IsDir() || !licenseFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
					continue
				}
				raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
				if err != nil {
					return err
				}
				text := tidy(string(raw))
				if strings.HasPrefix(text, "== ") || strings.Contains(text, "\n== ") {
					return fmt.Errorf("%s: a line begins as a section does", filepath.Join(dir, e.Name()))
				}
				head := strings.TrimSpace("== " + c.name + " " + c.version)
				if heads[text] == nil {
					texts = append(texts, text)
				}
				if !slices.Contains(heads[text], head) {
					heads[text] = append(heads[text], head)
				}
				found = true
			}
		}
		if !found {
			return fmt.Errorf("%s %s has no license file", c.name, c.version)
		}
	}
	var b strings.Builder
	for _, text := range texts {
		b.WriteString(strings.Join(heads[text], "\n") + "\n\n" + text + "\n")
	}
	return os.WriteFile(filepath.Join(root, "internal/licenses/texts.txt"), []byte(b.String()), 0o666)
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// tidy gives a text Unix line ends and no space at the ends of lines.
func tidy(s string) string {
	lines := strings.Split(strings.ReplaceAll(s, "\r", ""), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t\f")
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n") + "\n"
}

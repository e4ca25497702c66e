package model

import (
	"errors"
	"path"
	"strings"

	"umbra/gitstore/object"
	"umbra/internal/workspace/wstest"
)

// folder is the model of a folder: what stands at each path, folders too.
type folder map[string]wstest.Thing

var (
	errRefused = errors.New("refused")
	// errUnknown: the model does not follow links.
	errUnknown = errors.New("not told")
)

func folderOf(f wstest.Folder) folder {
	out := make(folder, 2*len(f))
	for p, t := range f {
		out[p] = wstest.Thing{Mode: t.Mode, Data: t.Data}
		out.parents(p)
	}
	return out
}

func (f folder) parents(p string) {
	for d := path.Dir(p); d != "."; d = path.Dir(d) {
		if _, ok := f[d]; ok {
			return
		}
		f[d] = wstest.Thing{Mode: object.Dir}
	}
}

func (f folder) kids(dir string) (out []string) {
	for p := range f {
		if strings.HasPrefix(p, dir+"/") {
			out = append(out, p)
		}
	}
	return out
}

// plain gives the folder as wstest.Disk does.
func (f folder) plain() wstest.Folder {
	out := make(wstest.Folder, len(f))
	for p, t := range f {
		if t.Mode != object.Dir || len(f.kids(p)) == 0 {
			out[p] = t
		}
	}
	return out
}

// way checks the folders above a path: unknown where one is a link, refused
// where one is a file.
func (f folder) way(p string) error {
	var err error
	for d := path.Dir(p); d != "."; d = path.Dir(d) {
		switch t, ok := f[d]; {
		case ok && t.Mode == object.Symlink:
			return errUnknown
		case ok && t.Mode != object.Dir:
			err = errRefused
		}
	}
	return err
}

// apply plays operations: what a request with them has to make of the folder.
func (f folder) apply(ops []op) error {
	for _, o := range ops {
		if err := f.one(o); err != nil {
			return err
		}
	}
	return nil
}

func (f folder) one(o op) error {
	if err := f.way(o.path); err != nil {
		return err
	}
	t, there := f[o.path]
	isDir := there && t.Mode == object.Dir
	if there && t.Mode == object.Symlink {
		switch o.verb {
		case "put", "line", "+x", "-x", "cp":
			return errUnknown
		}
	}
	switch o.verb {
	case "put":
		if isDir {
			return errRefused
		}
		if !there {
			t.Mode = object.Regular
		}
		t.Data = o.arg
	case "line":
		if !there || isDir {
			return errRefused
		}
		t.Data = setLine(t.Data, o.n, o.arg)
	case "+x", "-x":
		if !there || isDir {
			return errRefused
		}
		t.Mode = object.Executable
		if o.verb == "-x" {
			t.Mode = object.Regular
		}
	case "ln":
		if isDir {
			return errRefused
		}
		t = wstest.Thing{Mode: object.Symlink, Data: o.arg}
	case "mkdir":
		if there {
			return errRefused
		}
		if d := path.Dir(o.path); d != "." && f[d].Mode != object.Dir {
			return errRefused
		}
		t.Mode = object.Dir
	case "del", "rmdir":
		kids := f.kids(o.path)
		if !there || isDir && o.verb == "rmdir" && len(kids) > 0 {
			return errRefused
		}
		delete(f, o.path)
		for _, k := range kids {
			delete(f, k)
		}
		return nil
	case "mv":
		return f.move(o.path, o.arg)
	default:
		return errUnknown
	}
	f[o.path] = t
	f.parents(o.path)
	return nil
}

func (f folder) move(from, to string) error {
	if err := f.way(to); err != nil {
		return err
	}
	t, there := f[from]
	if !there || from == to || strings.HasPrefix(to, from+"/") {
		return errRefused
	}
	old, taken := f[to]
	isDir := t.Mode == object.Dir
	if taken && (isDir != (old.Mode == object.Dir) || isDir && len(f.kids(to)) > 0) {
		return errRefused
	}
	kids := f.kids(from)
	delete(f, from)
	f[to] = t
	for _, k := range kids {
		f[to+strings.TrimPrefix(k, from)] = f[k]
		delete(f, k)
	}
	f.parents(to)
	return nil
}

// setLine replaces a line of a text; one beyond the end is appended.
func setLine(text string, n int, with string) string {
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	end := "\n"
	if strings.Contains(text, "\r\n") {
		end = "\r\n"
	}
	if n >= len(lines) {
		return text + with + end
	}
	if !strings.HasSuffix(lines[n], "\n") {
		end = ""
	}
	lines[n] = with + end
	return strings.Join(lines, "")
}

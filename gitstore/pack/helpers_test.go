package pack_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// gitEnv keeps the machine's and the person's configuration out of the oracle.
func gitEnv() []string {
	return append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/nonexistent",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.invalid", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.invalid")
}

// git runs git in dir and gives its standard output; it must succeed.
func git(t testing.TB, dir string, stdin []byte, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, gitEnv(), bytes.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("git %s: %v\n%s%s", strings.Join(args, " "), err, out.Bytes(), errs.Bytes())
	}
	return out.Bytes()
}

// bare makes an empty bare repository and gives its folder and an FS on its
// objects/pack.
func bare(t testing.TB) (string, vfs.FS) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "r.git")
	git(t, "", nil, "init", "-q", "--bare", dir)
	return dir, osFS(t, filepath.Join(dir, "objects", "pack"))
}

func osFS(t testing.TB, dir string) vfs.FS {
	t.Helper()
	fsys, err := vfs.OS(dir)
	need.NoError(t, err)
	t.Cleanup(func() { fsys.Close() })
	return fsys
}

func create(t testing.TB, fsys vfs.FS, name string) vfs.File {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	need.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func writeFile(t testing.TB, fsys vfs.FS, name string, data []byte) {
	t.Helper()
	f := create(t, fsys, name)
	if _, err := f.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
}

// newWriter makes a Writer on name.pack.
func newWriter(t testing.TB, fsys vfs.FS, name string) *pack.Writer {
	t.Helper()
	w, err := pack.Create(create(t, fsys, name+".pack"), pack.WriterOptions{})
	need.NoError(t, err)
	return w
}

// finish finishes the pack and writes its index beside it.
func finish(t testing.TB, fsys vfs.FS, name string, w *pack.Writer) []pack.IdxEntry {
	t.Helper()
	sum, entries, err := w.Finish()
	need.NoError(t, err)
	writeFile(t, fsys, name+".idx", pack.EncodeIdx(entries, sum))
	return entries
}

func open(t testing.TB, fsys vfs.FS, name string, opt pack.Options) *pack.Pack {
	t.Helper()
	opt.Idx.Verify = true
	p, err := pack.Open(fsys, name+".pack", name+".idx", opt)
	need.NoError(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// thing is an object as a test knows it.
type thing struct {
	id   object.ID
	kind object.Kind
	data []byte
}

func blob(data []byte) thing { return thing{object.Hash(object.Blob, data), object.Blob, data} }

// text gives n bytes that compress like source code does.
func text(r *rand.Rand, n int) []byte {
	words := []string{"func ", "return ", "if err != nil {\n", "}\n", "value", "index", "\t", "name", " := ", "(", ")", "0x"}
	var b []byte
	for len(b) < n {
		b = append(b, words[r.IntN(len(words))]...)
		if r.IntN(4) == 0 {
			b = append(b, byte('a'+r.IntN(26)), byte('a'+r.IntN(26)))
		}
	}
	return b[:n]
}

// edited changes a few bytes somewhere.
func edited(r *rand.Rand, b []byte) []byte {
	at := r.IntN(len(b) + 1)
	end := min(len(b), at+r.IntN(20))
	out := append([]byte{}, b[:at]...)
	out = append(out, text(r, r.IntN(40))...)
	return append(out, b[end:]...)
}

// history makes a linear history of small edits: blobs, trees (the root and one
// folder), commits and a tag at the end, in the order of their making.
func history(t testing.TB, r *rand.Rand, commits int) []thing {
	t.Helper()
	var all []thing
	add := func(kind object.Kind, data []byte) object.ID {
		id := object.Hash(kind, data)
		all = append(all, thing{id, kind, data})
		return id
	}
	files := make([][]byte, 20)
	sub, err := object.EncodeTree(nil)
	need.NoError(t, err)
	root, parent := sub, object.Zero
	who := object.Signature{Name: "umbra", Email: "umbra@umbra.invalid", When: time.Unix(1_700_000_000, 0)}
	for n := range commits {
		i := r.IntN(len(files))
		if files[i] == nil {
			files[i] = text(r, 200+r.IntN(3000))
		}
		files[i] = edited(r, files[i])
		e := object.Entry{Name: "file" + string(rune('a'+i)), Mode: object.Regular, ID: add(object.Blob, files[i])}
		if sub, err = sub.With([]object.Entry{e}, nil); err != nil {
			t.Fatal(err)
		}
		d := object.Entry{Name: "src", Mode: object.Dir, ID: add(object.Tree, sub.Bytes())}
		if root, err = root.With([]object.Entry{d}, nil); err != nil {
			t.Fatal(err)
		}
		c := object.CommitData{Tree: add(object.Tree, root.Bytes()), Author: who, Committer: who, Message: "change\n"}
		if n > 0 {
			c.Parents = []object.ID{parent}
		}
		b, err := c.Encode()
		need.NoError(t, err)
		parent = add(object.Commit, b)
	}
	tag := object.TagData{Object: parent, Kind: object.Commit, Name: "end", Tagger: who, Message: "done\n"}
	b, err := tag.Encode()
	need.NoError(t, err)
	add(object.Tag, b)
	return all
}

// last gives the last object of a kind.
func last(all []thing, kind object.Kind) thing {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].kind == kind {
			return all[i]
		}
	}
	return thing{}
}

// fsck points refs at the last commit and tag, and lets git judge the whole.
func fsck(t testing.TB, dir string, all []thing) {
	t.Helper()
	git(t, dir, nil, "update-ref", "refs/heads/master", last(all, object.Commit).id.String())
	git(t, dir, nil, "update-ref", "refs/tags/end", last(all, object.Tag).id.String())
	if out := git(t, dir, nil, "fsck", "--strict", "--full"); len(out) > 0 {
		t.Errorf("git fsck says:\n%s", out)
	}
}

// catFile compares every object with what `git cat-file --batch` prints.
func catFile(t testing.TB, dir string, all []thing) {
	t.Helper()
	var in, want bytes.Buffer
	for _, o := range all {
		in.WriteString(o.id.String() + "\n")
		want.WriteString(o.id.String() + " " + string(object.Header(o.kind, int64(len(o.data)))))
		want.Truncate(want.Len() - 1)
		want.WriteByte('\n')
		want.Write(o.data)
		want.WriteByte('\n')
	}
	if got := git(t, dir, in.Bytes(), "cat-file", "--batch"); !bytes.Equal(got, want.Bytes()) {
		t.Errorf("git cat-file --batch prints %d bytes, not the %d expected ones", len(got), want.Len())
	}
}

// getAll compares every object with what the pack gives.
func getAll(t testing.TB, p *pack.Pack, all []thing) {
	t.Helper()
	for _, o := range all {
		kind, data, err := p.Get(o.id)
		if err != nil || kind != o.kind || !bytes.Equal(data, o.data) {
			t.Fatalf("Get(%v) = %v, %d bytes, %v; want %v, %d bytes", o.id, kind, len(data), err, o.kind, len(o.data))
		}
		kind, size, err := p.Info(o.id)
		if err != nil || kind != o.kind || size != int64(len(o.data)) {
			t.Fatalf("Info(%v) = %v, %d, %v; want %v, %d", o.id, kind, size, err, o.kind, len(o.data))
		}
	}
}

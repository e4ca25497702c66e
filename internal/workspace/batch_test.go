package workspace

import (
	"strings"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/vfs"
)

// What a change set comes to: its entries, the tree, the disk.
func TestChangeSets(t *testing.T) {
	base := map[string]string{"a": "A", "b": "B", "d/x": "X", "d/y": "Y", "d/sub/z": "Z", "l": "->a", "ld": "->d", "empty/": "", "x.sh": "S"}
	cases := []struct {
		name    string
		ops     []Op
		entries string            // "!code" for an error
		want    map[string]string // differences from base; "" gone
	}{
		{"write new", []Op{write("n", "N")}, "create n", map[string]string{"n": "N"}},
		{"write in new folders", []Op{write("p/q/r", "R")}, "create p/q/r", map[string]string{"p/q/r": "R"}},
		{"overwrite", []Op{write("a", "A2")}, "modify a", map[string]string{"a": "A2"}},
		{"unchanged", []Op{write("a", "A")}, "", nil},
		{"through a link", []Op{write("l", "L")}, "modify a", map[string]string{"a": "L"}},
		{"through a linked folder", []Op{write("ld/x", "L")}, "modify d/x", map[string]string{"d/x": "L"}},
		{"new file in a linked folder", []Op{write("ld/new", "L")}, "create d/new", map[string]string{"d/new": "L"}},
		{"replace a link itself", []Op{{Kind: OpWrite, Path: "l", Data: []byte("f"), NoFollow: true}}, "modify l", map[string]string{"l": "f"}},
		{"delete", []Op{del("a")}, "delete a", map[string]string{"a": ""}},
		{"delete a link", []Op{del("l")}, "delete l", map[string]string{"l": ""}},
		{"delete a folder", []Op{del("d")}, "delete d/sub/z, delete d/x, delete d/y", map[string]string{"d/x": "", "d/y": "", "d/sub/z": ""}},
		{"delete an empty folder", []Op{del("empty")}, "rmdir empty/", map[string]string{"empty/": ""}},
		{"delete what is not there", []Op{del("nix")}, "!file_not_found", nil},
		{"delete not recursively", []Op{{Kind: OpDelete, Path: "d"}}, "!directory_not_empty", nil},
		{"rename", []Op{rename("a", "c")}, "rename a -> c", map[string]string{"a": "", "c": "A"}},
		{"rename into new folders", []Op{rename("a", "m/n/c")}, "rename a -> m/n/c", map[string]string{"a": "", "m/n/c": "A"}},
		{"rename over", []Op{rename("a", "b")}, "delete b, rename a -> b", map[string]string{"a": "", "b": "A"}},
		{"rename a link", []Op{rename("l", "k")}, "rename l -> k", map[string]string{"l": "", "k": "->a"}},
		{"rename a folder", []Op{rename("d", "e")}, "rename d/sub/z -> e/sub/z, rename d/x -> e/x, rename d/y -> e/y",
			map[string]string{"d/x": "", "d/y": "", "d/sub/z": "", "e/x": "X", "e/y": "Y", "e/sub/z": "Z"}},
		{"rename an empty folder", []Op{rename("empty", "e2")}, "rename empty/ -> e2/", map[string]string{"empty/": "", "e2/": "/"}},
		{"rename into itself", []Op{rename("d", "d/e")}, "!move_into_itself", nil},
		{"rename a folder over a full one", []Op{rename("empty", "d")}, "!directory_not_empty", nil},
		{"swap", []Op{rename("a", "t"), rename("b", "a"), rename("t", "b")}, "rename a -> b, rename b -> a", map[string]string{"a": "B", "b": "A"}},
		{"there and back", []Op{rename("a", "t"), rename("t", "a")}, "", nil},
		{"write, rename, delete", []Op{write("a", "1"), rename("a", "b"), del("b")}, "delete a, delete b", map[string]string{"a": "", "b": ""}},
		{"rename and modify", []Op{rename("a", "c"), write("c", "C")}, "rename a -> c", map[string]string{"a": "", "c": "C"}},
		{"rename and write anew", []Op{rename("a", "c"), write("a", "new")}, "rename a -> c, create a", map[string]string{"a": "new", "c": "A"}},
		{"made and deleted", []Op{write("n", "N"), del("n")}, "", nil},
		{"deleted and made", []Op{del("a"), write("a", "again")}, "modify a", map[string]string{"a": "again"}},
		{"deleted and made the same", []Op{del("a"), write("a", "A")}, "", nil},
		{"twice", []Op{write("a", "1"), write("a", "2")}, "modify a", map[string]string{"a": "2"}},
		{"chmod", []Op{chmod("x.sh", object.Executable)}, "chmod x.sh", map[string]string{"x.sh": "", "x.sh*": "S"}},
		{"write and chmod", []Op{write("x.sh", "T"), chmod("x.sh", object.Executable)}, "modify x.sh", map[string]string{"x.sh": "", "x.sh*": "T"}},
		{"chmod and back", []Op{chmod("x.sh", object.Executable), chmod("x.sh", object.Regular)}, "", nil},
		{"mkdir", []Op{mkdir("n/m")}, "mkdir n/, mkdir n/m/", map[string]string{"n/m/": "/"}},
		{"mkdir and fill", []Op{mkdir("n"), write("n/f", "F")}, "create n/f", map[string]string{"n/f": "F"}},
		{"mkdir and remove", []Op{mkdir("n"), del("n")}, "", nil},
		{"symlink", []Op{symlink("s", "d/x")}, "symlink s", map[string]string{"s": "->d/x"}},
		{"symlink that leads out", []Op{symlink("s", "../x")}, "!link_leads_out", nil},
		{"symlink that leads out by a link", []Op{symlink("s", "ld/../../x")}, "!link_leads_out", nil},
		{"symlink to git", []Op{symlink("s", ".git/config")}, "!bad_path", nil},
		{"link and write through it", []Op{symlink("s", "d"), write("s/x", "via")}, "symlink s, modify d/x", map[string]string{"s": "->d", "d/x": "via"}},
		{"copy", []Op{copyOp("a", "c")}, "create c", map[string]string{"c": "A"}},
		{"copy a folder", []Op{copyOp("d", "c")}, "create c/sub/z, create c/x, create c/y", map[string]string{"c/x": "X", "c/y": "Y", "c/sub/z": "Z"}},
		{"copy what the batch wrote", []Op{write("n", "N"), copyOp("n", "m")}, "create n, create m", map[string]string{"n": "N", "m": "N"}},
		{"folder moved, then written into", []Op{rename("d", "e"), write("e/x", "1"), write("e/new", "2")},
			"rename d/sub/z -> e/sub/z, rename d/x -> e/x, rename d/y -> e/y, create e/new",
			map[string]string{"d/x": "", "d/y": "", "d/sub/z": "", "e/x": "1", "e/y": "Y", "e/sub/z": "Z", "e/new": "2"}},
		{"folder moved, a file moved out", []Op{rename("d", "e"), rename("e/x", "x")}, "rename d/sub/z -> e/sub/z, rename d/x -> x, rename d/y -> e/y",
			map[string]string{"d/x": "", "d/y": "", "d/sub/z": "", "x": "X", "e/y": "Y", "e/sub/z": "Z"}},
		{"folder gone, file in its place", []Op{del("d"), write("d", "file")}, "delete d/sub/z, delete d/x, delete d/y, create d",
			map[string]string{"d/x": "", "d/y": "", "d/sub/z": "", "d": "file"}},
		{"file gone, folder in its place", []Op{del("a"), write("a/b", "in")}, "delete a, create a/b", map[string]string{"a": "", "a/b": "in"}},
		{"below a file", []Op{write("a/b", "in")}, "!not_a_directory", nil},
		{"onto a folder", []Op{write("d", "in")}, "!is_a_directory", nil},
		{"all or nothing", []Op{write("a", "1"), del("nix")}, "!file_not_found", nil},
		{"completes a repository", []Op{write("r/HEAD", "1"), mkdir("r/objects"), mkdir("r/refs"), write("r/config", "1")}, "!bad_path", nil},
		{"edit", []Op{{Kind: OpEdit, Path: "a", Edit: func(old []byte) ([]byte, error) { return append(old, '!'), nil }}}, "modify a", map[string]string{"a": "A!"}},
	}
	for _, deny := range [][]string{nil, {vfs.OpTmpfile}, {vfs.OpExchange}, {vfs.OpTmpfile, vfs.OpExchange}} {
		for _, c := range cases {
			t.Run(c.name+strings.Join(deny, " "), func(t *testing.T) {
				b := newBench(t, base, deny...)
				defer b.stop()
				before := b.w.store.Tip()
				res, err := b.apply(c.ops...)
				want := inFolder(t, b.mem, "ws")
				if code, failed := strings.CutPrefix(c.entries, "!"); failed {
					if err == nil || errs.CodeOf(err) != code {
						t.Fatalf("%v, want %s", err, code)
					}
					if b.w.store.Tip() != before {
						t.Error("a failed request made a commit")
					}
				} else {
					must(t, err)
					if got := brief(res.Entries); got != c.entries {
						t.Errorf("entries %q, want %q", got, c.entries)
					}
					if (res.Commit.IsZero()) != (c.entries == "") {
						t.Errorf("commit %v", res.Commit)
					}
					if !res.Commit.IsZero() {
						commit, err := b.w.store.ReadCommit(t.Context(), res.Commit)
						must(t, err)
						again, err := b.w.rec.EntriesOf(t.Context(), commit)
						must(t, err)
						if brief(again) != c.entries {
							t.Errorf("entries of the commit are %q", brief(again))
						}
						for i := range again {
							if again[i].Before != res.Entries[i].Before || again[i].After != res.Entries[i].After || again[i].AfterHash != res.Entries[i].AfterHash ||
								again[i].Mode != res.Entries[i].Mode || again[i].BeforeMode != res.Entries[i].BeforeMode {
								t.Errorf("entry %d: %+v, of the commit %+v", i, res.Entries[i], again[i])
							}
						}
					}
				}
				b.same()
				full := make(map[string]string)
				for k, v := range base {
					if strings.HasSuffix(k, "/") {
						v = "/"
					}
					full[k] = v
				}
				for k, v := range c.want {
					if v == "" {
						delete(full, k)
					} else {
						full[k] = v
					}
				}
				if d := diffMaps(files(want), files(full)); d != "" {
					t.Error(d)
				}
				if b.w.Settled() != b.w.store.Tip().Seq {
					t.Errorf("settled %d of %d", b.w.Settled(), b.w.store.Tip().Seq)
				}
			})
		}
	}
}

func TestPreconditions(t *testing.T) {
	b := newBench(t, map[string]string{"a": "A"})
	defer b.stop()
	id := object.Hash(object.Blob, []byte("A")).String()
	op := write("a", "B")
	op.If.Match = []string{"0000000000000000000000000000000000000000"}
	_, err := b.apply(op)
	if !errs.Is(err, errs.Precondition) {
		t.Fatal(err)
	}
	op.If.Match = []string{"x", id}
	b.ok(op)
	if _, err := b.apply(op); !errs.Is(err, errs.Precondition) {
		t.Fatal(err)
	}
	n := write("n", "1")
	n.If.NoneMatchAny = true
	b.ok(n)
	if _, err := b.apply(n); !errs.Is(err, errs.Precondition) {
		t.Fatal(err)
	}
	star := write("nix", "1")
	star.If.Match = []string{"*"}
	if _, err := b.apply(star); !errs.Is(err, errs.Precondition) {
		t.Fatal(err)
	}
	b.same()
}

package object_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/need"
)

var who = object.Signature{Name: "Ada L.", Email: "ada@umbra.invalid", When: time.Unix(1_700_000_000, 0).UTC()}

func TestCommitRoundTrip(t *testing.T) {
	dir, _ := repo(t)
	git(t, dir, nil, "hash-object", "-w", "-t", "tree", "--stdin")
	var parents []object.ID
	for _, message := range []string{"", "\n", "subject\n", "subject\n\nbody\n\nTask-Id: a\n", "not UTF-8 \xff", "\n\nlate"} {
		c := &object.CommitData{Tree: object.EmptyTree, Parents: parents, Author: who, Committer: who, Message: message}
		b, err := c.Encode()
		need.NoError(t, err)
		got, err := object.ParseCommit(b)
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("read as %+v, %v; want %+v", got, err, c)
		}
		id := write(t, dir, "commit", b)
		if id != object.Hash(object.Commit, b) {
			t.Errorf("id %v", id)
		}
		git(t, dir, nil, "update-ref", "refs/heads/master", id.String())
		if out := git(t, dir, nil, "log", "-1", "--format=%an|%ae|%at|%cn|%T"); out != "Ada L.|ada@umbra.invalid|1700000000|Ada L.|"+object.EmptyTree.String() {
			t.Errorf("git log prints %q", out)
		}
		parents = append([]object.ID{id}, parents...)
	}
	tag := &object.TagData{Object: parents[0], Kind: object.Commit, Name: "tasks/a.b-c", Tagger: who, Message: "goal\n\nStatus: active\n"}
	b, err := tag.Encode()
	need.NoError(t, err)
	if got, err := object.ParseTag(b); err != nil || !reflect.DeepEqual(got, tag) {
		t.Errorf("read as %+v, %v; want %+v", got, err, tag)
	}
	git(t, dir, nil, "update-ref", "refs/tags/tasks/a.b-c", write(t, dir, "tag", b).String())
	if out := git(t, dir, nil, "fsck", "--strict", "--full", "--no-dangling"); out != "" {
		t.Errorf("git fsck says %q", out)
	}
}

func TestCommitForeign(t *testing.T) {
	const tree = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n"
	c, err := object.ParseCommit([]byte(tree + "author  <> 12 +0530\ncommitter A  B <a <b> c> 0 -0000\nencoding latin1\ngpgsig -----BEGIN\n x\n \n -----END\n\nhello\n\nworld"))
	need.NoError(t, err)
	if c.Author != (object.Signature{When: time.Unix(12, 0).UTC()}) || c.Committer.Name != "A  B" || c.Committer.Email != "a <b> c" || c.Message != "hello\n\nworld" {
		t.Errorf("read as %+v", c)
	}
	for _, bad := range []string{
		"", "tree 4b825dc6\n", tree, tree + "author A <a> 1 +0000\n", tree + "parent x\n", tree + "author A a 1 +0000\ncommitter A <a> 1 +0000\n\n",
		tree + "author A <a> x +0000\ncommitter A <a> 1 +0000\n\n", tree + "author A <a> 1\ncommitter A <a> 1 +0000\n\n", tree + "author >A< 1 +0000\ncommitter A <a> 1 +0000\n\n",
		tree + "author A <a> 1 +0000\ncommitter A <a> 1 +0000\nmore", "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904",
	} {
		if _, err := object.ParseCommit([]byte(bad)); err == nil {
			t.Errorf("ParseCommit(%q) lets it pass", bad)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	good := object.CommitData{Tree: object.EmptyTree, Author: who, Committer: who, Message: "m\n"}
	for name, change := range map[string]func(*object.CommitData){
		"no tree":       func(c *object.CommitData) { c.Tree = object.Zero },
		"zero parent":   func(c *object.CommitData) { c.Parents = []object.ID{{}} },
		"NUL message":   func(c *object.CommitData) { c.Message = "a\x00" },
		"name line":     func(c *object.CommitData) { c.Author.Name = "a\ncommitter x <y> 1 +0000" },
		"name <":        func(c *object.CommitData) { c.Author.Name = "a <" },
		"email >":       func(c *object.CommitData) { c.Committer.Email = "a>" },
		"email NUL":     func(c *object.CommitData) { c.Committer.Email = "a\x00" },
		"empty name":    func(c *object.CommitData) { c.Committer.Name = "" },
		"before 1970":   func(c *object.CommitData) { c.Author.When = time.Unix(-1, 0) },
		"no time":       func(c *object.CommitData) { c.Author.When = time.Time{} },
		"name return":   func(c *object.CommitData) { c.Author.Name = "a\rb" },
		"email newline": func(c *object.CommitData) { c.Author.Email = "a\n" },
	} {
		c := good
		change(&c)
		if b, err := c.Encode(); err == nil {
			t.Errorf("%s: encoded as %q", name, b)
		}
	}
	tag := object.TagData{Object: object.EmptyTree, Kind: object.Tree, Tagger: who}
	for _, name := range []string{"", "a b", "a..b", "a\nb", "-a", "a.lock", "a/.b", "a//b", "/a", "a/", "a.", "@", "a@{b", "a~", "a^", "a:", "a?", "a*", "a[", "a\\", "a\x7f"} {
		tag.Name = name
		if _, err := tag.Encode(); !errors.Is(err, object.ErrBadTag) {
			t.Errorf("tag %q: %v", name, err)
		}
	}
	tag.Name = "ok"
	tag.Kind = 5
	if _, err := tag.Encode(); err == nil {
		t.Error("a tag of kind 5")
	}
}

func FuzzParseCommit(f *testing.F) {
	c := object.CommitData{Tree: object.EmptyTree, Parents: []object.ID{{1}}, Author: who, Committer: who, Message: "m\n"}
	b, err := c.Encode()
	need.NoError(f, err)
	f.Add(b)
	f.Add([]byte("tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor <> 1 +0000\ncommitter <> 1 +0000\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := object.ParseCommit(data)
		if err != nil {
			return
		}
		b, err := c.Encode()
		if err != nil {
			return // others' commits may hold what we do not write
		}
		again, err := object.ParseCommit(b)
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%+v is written and read as %+v, %v", c, again, err)
		}
	})
}

func FuzzParseTag(f *testing.F) {
	tag := object.TagData{Object: object.EmptyTree, Kind: object.Tree, Name: "t", Tagger: who, Message: "m\n"}
	b, err := tag.Encode()
	need.NoError(f, err)
	f.Add(b)
	f.Add([]byte(strings.Replace(string(b), "tagger", "taggers", 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		tag, err := object.ParseTag(data)
		if err != nil {
			return
		}
		b, err := tag.Encode()
		if err != nil {
			return
		}
		again, err := object.ParseTag(b)
		if err != nil || !reflect.DeepEqual(again, tag) {
			t.Fatalf("%+v is written and read as %+v, %v", tag, again, err)
		}
	})
}

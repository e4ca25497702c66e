package access

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/state"
)

func openBook(t *testing.T, path string, fixed ...Token) (*Book, *state.DB) {
	t.Helper()
	db, err := state.Open(path)
	need.NoError(t, err)
	b, err := Open(fixed, db)
	need.NoError(t, err)
	return b, db
}

func sumOf(secret string) Sum { return sha256.Sum256([]byte(secret)) }

// What is added holds at once and after a restart; what is removed does not, and
// tokens stay on when the last one is gone.
func TestBookOutlivesTheProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	b, db := openBook(t, path)
	if b.On() || b.Find(sumOf("")) != nil {
		t.Fatal("tokens are on without one")
	}
	now := time.Now()
	changed := b.Changed()
	got, secret, err := b.Add(Token{Name: "ci", Scope: Write, Roots: []string{"/srv"}, Expires: now.Add(time.Hour)}, now)
	if err != nil || !strings.HasPrefix(secret, "umbra_") || len(secret) < 32 {
		t.Fatal(got, secret, err)
	}
	select {
	case <-changed:
	default:
		t.Error("nobody was told")
	}
	if _, second, err := b.Add(Token{Name: "other"}, now); err != nil || second == secret {
		t.Fatal(second, err)
	}
	db.Close()

	b, db = openBook(t, path)
	found := b.Find(sumOf(secret))
	if found == nil || found.Name != "ci" || found.Scope != Write || len(found.Roots) != 1 || !b.On() || !b.Holds(found, now) {
		t.Fatalf("%+v", found)
	}
	if b.Holds(found, now.Add(time.Hour)) || !found.Expired(now.Add(time.Hour)) || found.Expired(now) {
		t.Error("it does not expire")
	}
	if raw, err := os.ReadFile(path); err != nil || strings.Contains(string(raw), secret) || strings.Contains(string(raw), secret[6:]) {
		t.Error("the secret is on disk", err)
	}
	if err := b.Off(); errs.CodeOf(err) != "tokens_left" {
		t.Error(err)
	}
	for _, name := range []string{"ci", "other"} {
		need.NoError(t, b.Remove(name))
	}
	if b.Find(sumOf(secret)) != nil || b.Holds(found, now) || !b.On() || len(b.List()) != 0 {
		t.Error("a removed token lets in")
	}
	if err := b.Remove("ci"); !errs.Is(err, errs.NotFound) {
		t.Error(err)
	}
	db.Close()

	b, db = openBook(t, path)
	if !b.On() {
		t.Error("tokens are off after a restart")
	}
	if err := b.Off(); err != nil || b.On() {
		t.Error(err)
	}
	db.Close()
	b, db = openBook(t, path)
	defer db.Close()
	if b.On() {
		t.Error("tokens are on again")
	}
}

// A token of the settings cannot be removed, and holds where one that was added
// has its name.
func TestBookWithSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	b, db := openBook(t, path)
	now := time.Now()
	_, secret, err := b.Add(Token{Name: "ci", Scope: Write}, now)
	need.NoError(t, err)
	db.Close()
	b, db = openBook(t, path, Token{Name: "ci", SHA256: sumOf("x")}, Token{Name: "b", SHA256: sumOf("y")})
	defer db.Close()
	if b.Find(sumOf(secret)) != nil || b.Find(sumOf("x")) == nil {
		t.Error("the added one holds")
	}
	if list := b.List(); len(list) != 3 || list[0].Name != "b" || !list[1].Fixed() || list[2].Fixed() {
		t.Errorf("%+v", list)
	}
	if err := b.Remove("b"); errs.CodeOf(err) != "token_in_settings" {
		t.Error(err)
	}
	if _, _, err := b.Add(Token{Name: "b"}, now); errs.CodeOf(err) != "token_exists" {
		t.Error(err)
	}
	// The hidden one goes first, the other then stands in the way.
	if err := b.Remove("ci"); err != nil {
		t.Error(err)
	}
	if err := b.Remove("ci"); errs.CodeOf(err) != "token_in_settings" {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	b, db := openBook(t, filepath.Join(t.TempDir(), "state.db"))
	defer db.Close()
	for name, ok := range map[string]bool{"a": true, "é": true, "a b": true, "a/b": true, strings.Repeat("x", 128): true, strings.Repeat("x", 129): false,
		"": false, " a": false, "a ": false, "a<b": false, "a>b": false, "a\nb": false, "a\xff": false, "a\u202eb": false} {
		if _, _, err := b.Add(Token{Name: name}, time.Now()); (err == nil) != ok || err != nil && !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, _, err := Fixed().Add(Token{Name: "a"}, time.Now()); err == nil {
		t.Error("a book without a store took one")
	}
}

// Readers look while one writes; run with -race.
func TestBookIsReadBesideChanges(t *testing.T) {
	b, db := openBook(t, filepath.Join(t.TempDir(), "state.db"))
	defer db.Close()
	_, secret, err := b.Add(Token{Name: "stays"}, time.Now())
	need.NoError(t, err)
	sum, stop := sumOf(secret), make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if f := b.Find(sum); f == nil || f.Name != "stays" || !b.On() {
					t.Error("it was gone for a moment")
					return
				}
			}
		})
	}
	for range 20 {
		if _, _, err := b.Add(Token{Name: "comes"}, time.Now()); err != nil {
			t.Error(err)
		}
		if err := b.Remove("comes"); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	readers.Wait()
}

func TestCanonical(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	need.NoError(t, err)
	need.NoError(t, os.Mkdir(filepath.Join(dir, "real"), 0o755))
	need.NoError(t, os.Symlink("real", filepath.Join(dir, "link")))
	for in, want := range map[string]string{"/link": "/real", "/link/not/yet": "/real/not/yet", "/real/../link/": "/real", "/none": "/none"} {
		if got := Canonical(dir + in); got != dir+want {
			t.Errorf("%s: %s", in, got)
		}
	}
}

// Two servers share a database: what one changes the other has after a Reload, and no
// change is lost.
func TestBooksShareADatabase(t *testing.T) {
	db := state.NewShared()
	one, err := Open(nil, db)
	need.NoError(t, err)
	two, err := Open(nil, db)
	need.NoError(t, err)
	reload := func(b *Book) {
		t.Helper()
		need.NoError(t, b.Reload())
	}
	now := time.Now()
	_, first, err := one.Add(Token{Name: "first"}, now)
	need.NoError(t, err)
	changed := two.Changed()
	reload(two)
	select {
	case <-changed:
	default:
		t.Error("nobody was told")
	}
	if two.Find(sumOf(first)) == nil || !two.On() {
		t.Fatal("the other's token is not known")
	}
	changed = two.Changed()
	reload(two)
	select {
	case <-changed:
		t.Error("reported nothing")
	default:
	}
	_, second, err := two.Add(Token{Name: "second"}, now)
	need.NoError(t, err)
	if _, _, err := one.Add(Token{Name: "second"}, now); errs.CodeOf(err) != "token_exists" {
		t.Errorf("a name that another server has given: %v", err)
	}
	// One has not reloaded: what it adds leaves it with both.
	_, third, err := one.Add(Token{Name: "third"}, now)
	if err != nil || one.Find(sumOf(second)) == nil || one.Find(sumOf(third)) == nil {
		t.Errorf("a change that another had overtaken: %v", err)
	}
	for _, name := range []string{"first", "second", "third"} {
		if err := two.Remove(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if one.Find(sumOf(first)) == nil {
		t.Error("a book reloads by itself")
	}
	if err := one.Off(); err != nil { // it reloads first
		t.Error(err)
	}
	reload(two)
	if one.Find(sumOf(first)) != nil || one.On() || two.On() {
		t.Error("a removed token holds")
	}
}

package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"umbra/internal/clock"
	"umbra/internal/errs"
	"umbra/internal/state"
)

// Where the records are in state.db: a token by its name, and under stateKey
// that tokens are on.
const (
	tokensBucket = "tokens"
	stateBucket  = "access"
	stateKey     = "tokens_on"
	versionKey   = "version" // counts the changes, in a shared database
)

// record is a token as it is kept.
type record struct {
	SHA256  string    `json:"sha256"`
	Scope   string    `json:"scope"`
	Roots   []string  `json:"roots,omitempty"`
	Expires time.Time `json:"expires,omitzero"`
	Created time.Time `json:"created"`
}

// Book is all tokens. Readers take no lock; all methods may be called from any
// goroutine. What another process changes in a shared database holds here from the
// next Reload on.
type Book struct {
	fixed []Token
	db    *state.DB // nil: the settings' tokens are all there are
	page  atomic.Pointer[page]

	mu sync.Mutex // one change at a time
}

// page is what holds at one time; it is never changed.
type page struct {
	on       bool // tokens are asked for
	kept     bool // because one was added once, whatever the settings say
	stored   []Token
	version  int // of the shared database when it was read
	bySum    map[Sum]*Token
	replaced chan struct{} // closed when another page holds
}

// Fixed makes a book of the settings' tokens alone, to which nothing can be
// added.
func Fixed(tokens ...Token) *Book {
	b := &Book{fixed: tokens}
	b.turn(nil, false, 0)
	return b
}

// Open makes the book of the settings' tokens and of those in db. Of two with
// one name that of the settings holds.
func Open(fixed []Token, db *state.DB) (*Book, error) {
	b := &Book{fixed: fixed, db: db}
	return b, b.read()
}

// Reload takes over what another process has changed. After an error the tokens stay
// as they were last read.
func (b *Book) Reload() error {
	if b.db == nil || !b.db.Shared() {
		return nil
	}
	version := 0
	if _, err := b.db.Get(stateBucket, versionKey, &version); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if version == b.page.Load().version {
		return nil
	}
	return b.read()
}

// Follow reloads until ctx ends. every bounds for how long a token holds that
// another process has removed.
func (b *Book) Follow(ctx context.Context, every time.Duration) {
	for range clock.Ticks(ctx, every) {
		_ = b.Reload() // the next time tries again
	}
}

// read takes over what the database has; mu is held, or no one else has the book yet.
func (b *Book) read() error {
	var stored []Token
	var since time.Time
	kept, version := false, 0
	err := b.db.View(func(tx *state.Tx) (err error) {
		if kept, err = tx.Get(stateBucket, stateKey, &since); err != nil {
			return err
		}
		if _, err = tx.Get(stateBucket, versionKey, &version); err != nil {
			return err
		}
		return tx.ForEach(tokensBucket, "", func(name string, raw []byte) (bool, error) {
			t, err := readRecord(name, raw)
			stored = append(stored, t)
			return true, err
		})
	})
	if err != nil {
		return err
	}
	b.turn(stored, kept, version)
	return nil
}

// change runs fn in a transaction that others notice, and returns the version that it
// makes; mu is held.
func (b *Book) change(fn func(tx *state.Tx) error) (version int, err error) {
	err = b.db.Update(func(tx *state.Tx) error {
		version = 0
		if b.db.Shared() {
			if _, err := tx.Get(stateBucket, versionKey, &version); err != nil {
				return err
			}
			version++
			if err := tx.Put(stateBucket, versionKey, version); err != nil {
				return err
			}
		}
		return fn(tx)
	})
	return version, errs.Wrap(err, "")
}

// changed makes what was changed here hold. Where another process has changed
// something in between, all is read; if that fails, the next Reload does it.
func (b *Book) changed(stored []Token, kept bool, version int) {
	was := b.page.Load().version
	if !b.db.Shared() || version == was+1 {
		b.turn(stored, kept, version)
		return
	}
	if err := b.read(); err != nil {
		b.turn(stored, kept, was)
	}
}

func readRecord(name string, raw []byte) (Token, error) {
	var r record
	fail := func(err error) (Token, error) {
		return Token{}, fmt.Errorf("access: record of token %q: %w", name, err)
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return fail(err)
	}
	t := Token{Name: name, Roots: r.Roots, Expires: r.Expires, Created: r.Created}
	sum, err := hex.DecodeString(r.SHA256)
	if err != nil || len(sum) != sha256.Size {
		return fail(fmt.Errorf("sha256 %q is malformed", r.SHA256))
	}
	t.SHA256 = Sum(sum)
	scope, ok := ParseScope(r.Scope)
	if !ok {
		return fail(fmt.Errorf("scope %q is unknown", r.Scope))
	}
	t.Scope = scope
	return t, nil
}

// turn makes another page hold, and wakes those that wait for it. mu is held, or
// the book is not in use yet.
func (b *Book) turn(stored []Token, kept bool, version int) {
	slices.SortFunc(stored, func(x, y Token) int { return cmp.Compare(x.Name, y.Name) })
	p := &page{on: kept || len(b.fixed) > 0, kept: kept, stored: stored, version: version, bySum: map[Sum]*Token{}, replaced: make(chan struct{})}
	for i := range stored {
		if !b.isFixed(stored[i].Name) {
			p.bySum[stored[i].SHA256] = &stored[i]
		}
	}
	for i := range b.fixed {
		p.bySum[b.fixed[i].SHA256] = &b.fixed[i]
	}
	if old := b.page.Swap(p); old != nil {
		close(old.replaced)
	}
}

func (b *Book) isFixed(name string) bool {
	return slices.ContainsFunc(b.fixed, func(t Token) bool { return t.Name == name })
}

// On reports whether a token is asked for.
func (b *Book) On() bool { return b.page.Load().on }

// Find gives the token with a secret's hash, also one that has expired; nil: there
// is none. It is looked up and not compared: who tries out secrets learns from the
// time that takes only of their hashes, which lead back to no secret.
func (b *Book) Find(sum Sum) *Token { return b.page.Load().bySum[sum] }

// Holds reports whether a token that was found lets in still.
func (b *Book) Holds(t *Token, now time.Time) bool {
	found := b.Find(t.SHA256)
	return found != nil && found.Name == t.Name && !found.Expired(now)
}

// Changed gives a channel that is closed at the next change.
func (b *Book) Changed() <-chan struct{} { return b.page.Load().replaced }

// List gives all tokens, those of the settings first, each in the order of names.
func (b *Book) List() []Token {
	fixed := slices.Clone(b.fixed)
	slices.SortFunc(fixed, func(x, y Token) int { return cmp.Compare(x.Name, y.Name) })
	return append(fixed, b.page.Load().stored...)
}

// Add makes a token and gives its secret, which is not kept. Created and SHA256
// are filled in. When it returns the token is durable, and lets in.
//
// errs.Invalid invalid_field; errs.Conflict token_exists.
func (b *Book) Add(t Token, now time.Time) (added Token, secret string, err error) {
	if !ValidName(t.Name) {
		return Token{}, "", errs.New(errs.Invalid, "invalid_field",
			"name must be 1 to 128 printable characters without < and >, and no space around: it signs commits.").With("field", "name")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.page.Load()
	if b.isFixed(t.Name) || slices.ContainsFunc(old.stored, func(s Token) bool { return s.Name == t.Name }) {
		return Token{}, "", tokenExists(t.Name)
	}
	if b.db == nil {
		return Token{}, "", errs.New(errs.Internal, "internal_error", "This book takes no tokens.")
	}
	secret = newSecret()
	t.SHA256, t.Created = sha256.Sum256([]byte(secret)), now.UTC().Truncate(time.Second)
	if !t.Expires.IsZero() {
		t.Expires = t.Expires.UTC().Truncate(time.Millisecond)
	}
	version, err := b.change(func(tx *state.Tx) error {
		if taken, err := tx.Get(tokensBucket, t.Name, &record{}); err != nil || taken {
			return cmp.Or(err, tokenExists(t.Name))
		}
		if err := tx.Put(tokensBucket, t.Name, record{SHA256: hex.EncodeToString(t.SHA256[:]), Scope: t.Scope.String(),
			Roots: t.Roots, Expires: t.Expires, Created: t.Created}); err != nil || old.kept {
			return err
		}
		return tx.Put(stateBucket, stateKey, t.Created)
	})
	if err != nil {
		return Token{}, "", err
	}
	b.changed(append(slices.Clone(old.stored), t), true, version)
	return t, secret, nil
}

func tokenExists(name string) error {
	return errs.New(errs.Conflict, "token_exists", "There is a token %q already.", name)
}

// Remove drops a token; when it returns the token is invalid.
//
// errs.NotFound token_not_found; errs.Conflict token_in_settings.
func (b *Book) Remove(name string) error {
	if err := b.Reload(); err != nil {
		return errs.Wrap(err, "")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.page.Load()
	i := slices.IndexFunc(old.stored, func(t Token) bool { return t.Name == name })
	switch {
	case i < 0 && b.isFixed(name):
		return errs.New(errs.Conflict, "token_in_settings", "The token %q is set in auth.tokens; remove it there.", name)
	case i < 0:
		return errs.New(errs.NotFound, "token_not_found", "The token %q does not exist.", name)
	}
	version, err := b.change(func(tx *state.Tx) error { return tx.Delete(tokensBucket, name) })
	if err != nil {
		return err
	}
	stored := slices.Clone(old.stored)
	b.changed(slices.Delete(stored, i, i+1), true, version)
	return nil
}

// Off lets everybody in again whom the settings let in without tokens.
//
// errs.Conflict tokens_left while there is a token.
func (b *Book) Off() error {
	if err := b.Reload(); err != nil {
		return errs.Wrap(err, "")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.page.Load()
	if len(old.stored)+len(b.fixed) > 0 {
		return tokensLeft()
	}
	if !old.kept {
		return nil
	}
	version, err := b.change(func(tx *state.Tx) error {
		if !tx.Empty(tokensBucket) {
			return tokensLeft()
		}
		return tx.Delete(stateBucket, stateKey)
	})
	if err != nil {
		return err
	}
	b.changed(nil, false, version)
	return nil
}

func tokensLeft() error {
	return errs.New(errs.Conflict, "tokens_left", "There are tokens; remove them all before tokens are turned off.")
}

// Package server puts the layers together: it opens what the settings name,
// builds the HTTP dialects on it, and serves them until a signal or the end of a
// context. The verbs that work without a running server build the same server in
// their own process.
package server

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"umbra/config"
	"umbra/internal/access"
	"umbra/internal/exitcode"
	"umbra/internal/state"
)

// openTokens makes the book of the settings' tokens and of those that were added.
func openTokens(cfg config.Config, db *state.DB, log *slog.Logger) (*access.Book, error) {
	fixed, err := tokensOf(cfg.Auth.Tokens)
	if err != nil {
		return nil, err
	}
	book, err := access.Open(fixed, db)
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	for _, t := range book.List() {
		if !t.Fixed() && named[t.Name] {
			log.Warn("auth.tokens has a token of the name of one that was added: that of the settings holds", "token", t.Name)
		}
		named[t.Name] = t.Fixed()
	}
	return book, nil
}

// tokensEvery bounds, with the time of a round trip, for how long a token lets in that
// another node has removed.
const tokensEvery = time.Second

// followTokens takes over what other nodes change, until d is closed.
func followTokens(book *access.Book, d *deps) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		book.Follow(ctx, tokensEvery)
	}()
	d.closers = append(d.closers, func(context.Context) error { stop(); <-done; return nil })
}

func tokensOf(list []config.Token) ([]access.Token, error) {
	var tokens []access.Token
	for _, t := range list {
		token := access.Token{Name: t.Name, Roots: canonical(t.Roots), Expires: t.Expires}
		if n, err := hex.Decode(token.SHA256[:], []byte(strings.ToLower(t.SHA256))); err != nil || n != len(token.SHA256) {
			return nil, fmt.Errorf("token %s: sha256 is malformed", t.Name)
		}
		token.Scope, _ = access.ParseScope(t.Scope)
		tokens = append(tokens, token)
	}
	return tokens, nil
}

// checkReach refuses an address that others can reach where nothing asks them
// who they are. Tokens that were added count: dir is held by this process.
func checkReach(cfg config.Config, dir *state.Dir, log *slog.Logger) error {
	err := cfg.CheckReach()
	if err == nil {
		return nil
	}
	db, openErr := state.Open(dir.Join("state.db"))
	if openErr != nil {
		return openErr
	}
	defer db.Close()
	book, openErr := openTokens(cfg, db, log)
	if openErr != nil {
		return openErr
	}
	if book.On() {
		return nil
	}
	return exitcode.Usage(err)
}

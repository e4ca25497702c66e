// Package server puts the layers together: it opens what the settings name,
// builds the HTTP dialects on it, and serves them until a signal or the end of a
// context. The verbs that work without a running server build the same server in
// their own process.
package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"umbra/config"
	"umbra/httpapi"
	"umbra/httpapi/upkeep"
	"umbra/internal/access"
	"umbra/internal/buildinfo"
	"umbra/internal/cluster"
	"umbra/internal/datadir"
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
// who they are. Tokens that were added count, those of the cluster that the settings
// name or of dir, which is held by this process.
func checkReach(ctx context.Context, cfg config.Config, dir *state.Dir, log *slog.Logger) error {
	unsafe := cfg.CheckReach()
	if unsafe == nil {
		return nil
	}
	opened := &deps{}
	var db *state.DB
	var err error
	if cfg.Cluster.On() {
		db, err = lookAtRecords(ctx, cfg, log, opened)
		if r, ok := errors.AsType[*cluster.Refusal](err); ok && r.Code == "cluster_missing" {
			return exitcode.Usage(unsafe)
		}
	} else if db, err = openState(dir, nil); err == nil {
		opened.closers = append(opened.closers, func(context.Context) error { return db.Close() })
	}
	if err != nil {
		return err
	}
	book, err := openTokens(cfg, db, log)
	if err == nil && !book.On() {
		err = exitcode.Usage(unsafe)
	}
	return errors.Join(err, opened.Close(ctx))
}

// lookAtRecords opens the records of the cluster that the settings name, for a process
// that is none of its nodes; they are closed with d.
func lookAtRecords(ctx context.Context, cfg config.Config, log *slog.Logger, d *deps) (*state.DB, error) {
	opts, _, _, err := ClusterParts(ctx, cfg)
	if err != nil {
		return nil, err
	}
	opts.Log = log
	admin, err := cluster.Look(ctx, opts)
	if err != nil {
		return nil, Refused(err)
	}
	db := state.New(admin.Records())
	d.closers = append(d.closers, func(context.Context) error {
		defer admin.Close()
		return db.Close()
	})
	return db, nil
}

// RunningNode returns the server that has a data directory, if it is a node of a cluster
// and can be called; else nil.
func RunningNode(dataDir string) *state.HeldError {
	h, held, err := state.FindHolder(dataDir)
	if err != nil || !held || h.Address == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dataDir, datadir.NodeFile)); err != nil {
		return nil
	}
	return &state.HeldError{Dir: dataDir, Holder: h}
}

// BuildTokens is Build for umbra token alone, on the records of the cluster that the
// settings name. The process does not become a node.
func BuildTokens(ctx context.Context, cfg config.Config, log *slog.Logger) (d *deps, err error) {
	opened := &deps{Owner: rand.Text() + rand.Text()}
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.Close(ctx))
		}
	}()
	db, err := lookAtRecords(ctx, cfg, log, opened)
	if err != nil {
		return nil, err
	}
	opts := httpapi.Options{Version: buildinfo.Version(), Log: log, MaxJSON: int64(cfg.Limits.JSONBytes), Owner: sha256.Sum256([]byte(opened.Owner))}
	if opts.Tokens, err = openTokens(cfg, db, log); err != nil {
		return nil, err
	}
	answers, err := state.OpenAnswers(db, "")
	if err != nil {
		return nil, err
	}
	opened.closers = append(opened.closers, func(context.Context) error { return answers.Close() })
	opts.Answers = answers
	opened.Server, err = httpapi.New(opts, &upkeep.Tokens{Book: opts.Tokens, Needed: cfg.CheckReach() != nil})
	return opened, err
}

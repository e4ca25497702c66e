package blob

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"umbra/internal/errs"
)

// markerKey is the object that says whose a prefix is.
const markerKey = "umbra-cluster"

// probePrefix begins the keys of the objects that Check writes and deletes.
const probePrefix = "umbra-probe/"

// marker is the object's content.
type marker struct {
	Cluster string `json:"cluster"`
}

// Check reports whether a cluster can use a store, by the marker object that names
// its cluster and by one operation of each sort. While the store is unreachable it
// is tried again, for patience. create writes a missing marker: a new cluster has
// none. place is how messages name bucket and prefix.
//
// Errors: *errs.Error with code blobs_unreachable, blobs_credentials,
// blobs_not_writable, blobs_other_cluster or blobs_marker_missing, or the
// context's.
func Check(ctx context.Context, s Store, place, cluster string, create bool, patience time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errPatience)
	defer cancel()
	var last error // the store's newest answer
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := check(ctx, s, place, cluster, create)
		if Is(err, Canceled) && errors.Is(err, errPatience) {
			if last == nil {
				last = err
			}
			return explain(last, place)
		}
		if !Is(err, Unreachable) {
			return explain(err, place)
		}
		last = err
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// errPatience is the cause of the end of a Check that found no store.
var errPatience = errors.New("no answer in time")

func check(ctx context.Context, s Store, place, cluster string, create bool) error {
	found, err := readMarker(ctx, s)
	switch {
	case Is(err, NotFound):
		if !create {
			return errs.New(errs.Conflict, "blobs_marker_missing", "%s has no marker of cluster %s. A wrong bucket or prefix?", place, cluster)
		}
	case err != nil:
		return err
	case found != cluster:
		return errs.New(errs.Conflict, "blobs_other_cluster", "%s belongs to cluster %s; the database is cluster %s.", place, found, cluster)
	}
	if probeErr := probe(ctx, s); probeErr != nil || err == nil {
		return probeErr
	}
	raw, err := json.Marshal(marker{cluster})
	if err != nil {
		return err
	}
	if err := s.Put(ctx, markerKey, bytes.NewReader(raw), int64(len(raw))); err != nil {
		return err
	}
	return check(ctx, s, place, cluster, false)
}

func readMarker(ctx context.Context, s Store) (string, error) {
	r, size, err := s.Get(ctx, markerKey)
	if err != nil {
		return "", err
	}
	defer r.Close()
	if size > 4096 {
		return "an unknown program's", nil
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		return "", fail(ctx, opGet, markerKey, Unreachable, err)
	}
	var m marker
	if json.Unmarshal(raw, &m) != nil || m.Cluster == "" {
		return "an unknown program's", nil
	}
	return m.Cluster, nil
}

// probe writes, reads, lists and deletes an object.
func probe(ctx context.Context, s Store) (err error) {
	key, text := probePrefix+random(), "written, read and deleted by a check"
	if err := s.Put(ctx, key, strings.NewReader(text), int64(len(text))); err != nil {
		return err
	}
	defer func() {
		if gone := s.Delete(ctx, key); err == nil {
			err = gone
		}
	}()
	r, err := s.GetRange(ctx, key, 8, 4)
	if err != nil {
		return err
	}
	got, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	if string(got) != text[8:12] {
		return fail(ctx, opRange, key, Refused, errLied)
	}
	for o, err := range s.List(ctx, key, "") {
		if err != nil {
			return err
		}
		if o.Key == key && o.Size == int64(len(text)) {
			return nil
		}
	}
	return fail(ctx, opList, key, Refused, errors.New("an object that was just written is not listed"))
}

// explain turns an error of the store into the one that a start ends with.
func explain(err error, place string) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	bucket := strings.TrimPrefix(place, "s3://")
	bucket, _, _ = strings.Cut(bucket, "/")
	cause := strings.TrimSuffix(e.Err.Error(), ".")
	switch {
	case e.Kind == Canceled && !errors.Is(e, errPatience):
		return err
	case e.Kind == Unreachable, e.Kind == Canceled, errors.Is(e, errNoBucket):
		return &errs.Error{Kind: errs.Unavailable, Code: "blobs_unreachable", Detail: fmt.Sprintf("Bucket %s cannot be reached: %s.", bucket, cause), Err: err}
	case e.Kind == Credentials:
		return &errs.Error{Kind: errs.Unavailable, Code: "blobs_credentials", Detail: fmt.Sprintf("Bucket %s: credentials are missing or were refused: %s.", bucket, cause), Err: err}
	}
	op := map[string]string{opPut: "PUT", opGet: "GET", opRange: "ranged GET", opList: "LIST", opDelete: "DELETE"}[e.Op]
	return &errs.Error{Kind: errs.Unavailable, Code: "blobs_not_writable",
		Detail: fmt.Sprintf("PUT, ranged GET, LIST or DELETE below %s was refused: %s: %s.", place, op, cause), Err: err}
}

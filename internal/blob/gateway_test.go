package blob_test

import (
	"context"
	"crypto/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"umbra/internal/blob"
	"umbra/internal/blob/blobtest"
	"umbra/internal/need"
)

// TestGateway runs the suite and the checks of a start against versitygw, which
// is built as a module of its own, so that its libraries are not the program's.
func TestGateway(t *testing.T) {
	need.Long(t, "the first build of versitygw takes minutes")
	program := filepath.Join(t.TempDir(), "versitygw")
	build := exec.Command(need.Tool(t, "go"), "build", "-trimpath", "-o", program, "github.com/versity/versitygw/cmd/versitygw")
	build.Dir = filepath.Join("..", "..", "tests", "tools", "s3server")
	if out, err := build.CombinedOutput(); err != nil {
		need.Missing(t, "versitygw cannot be built: "+err.Error()+"\n"+string(out))
	}
	blobtest.Env(t, blobtest.AccessKey, blobtest.SecretKey)
	address, dir := freeAddress(t), t.TempDir()
	need.NoError(t, os.Mkdir(filepath.Join(dir, blobtest.Bucket), 0o755))
	ctx, stop := context.WithCancel(context.Background())
	server := exec.CommandContext(ctx, program, "--port", address, "--access", blobtest.AccessKey, "--secret", blobtest.SecretKey, "--quiet", "posix", dir)
	need.NoError(t, server.Start())
	t.Cleanup(func() {
		stop()
		_ = server.Wait()
	})
	l := blob.Location{Bucket: blobtest.Bucket, Prefix: "check", Endpoint: "http://" + address, PathStyle: true, Region: "us-east-1"}
	tune := quick
	tune.Attempts = 1
	if err := blob.Check(ctx, openS3(t, l, tune), l.Place(), one, true, time.Minute); err != nil {
		t.Fatal(err) // it is tried until the server listens
	}
	said(t, blob.Check(ctx, openS3(t, l, quick), l.Place(), another, true, time.Minute),
		"blobs_other_cluster", "s3://packs/check belongs to cluster "+one+"; the database is cluster "+another+".")
	blobtest.Conform(t, func(t *testing.T) blob.Store {
		l.Prefix = rand.Text()
		return openS3(t, l, quick)
	})
	for _, c := range [][2]string{{"AKIAOTHER", blobtest.SecretKey}, {blobtest.AccessKey, "guessed"}} {
		blobtest.Env(t, c[0], c[1])
		for op, err := range all(openS3(t, l, quick)) {
			t.Run(op, func(t *testing.T) { kind(t, err, blob.Credentials) })
		}
	}
	blobtest.Env(t, blobtest.AccessKey, blobtest.SecretKey)
	l.Bucket = "other"
	for op, err := range all(openS3(t, l, quick)) {
		t.Run("bucket "+op, func(t *testing.T) { kind(t, err, blob.Refused) })
	}
}

// freeAddress returns an address on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	need.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

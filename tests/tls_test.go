package tests

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// writeCertificate puts a new certificate for loopback and its key in the place of
// the files, and returns it.
func writeCertificate(t *testing.T, cert, key, name string) *x509.CertPool {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	need.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(24 * time.Hour),
		NotBefore: time.Now().Add(-time.Hour), IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	need.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	need.NoError(t, err)
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		need.NoError(t, os.WriteFile(file+".new", pem.EncodeToMemory(block), 0o600))
		need.NoError(t, os.Rename(file+".new", file))
	}
	pool := x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	need.NoError(t, err)
	pool.AddCert(parsed)
	return pool
}

func TestHTTPS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	trusted := writeCertificate(t, cert, key, "one")
	s := harness.Start(t, harness.Options{Config: fmt.Sprintf("tls: {cert: %q, key: %q}\n", cert, key)})
	if !strings.HasPrefix(s.Stdout(), "umbra listening on https://127.0.0.1:") {
		t.Fatalf("the ready line is %q", s.Stdout())
	}
	base := strings.TrimSpace(strings.TrimPrefix(s.Stdout(), "umbra listening on "))

	// do sends one request on a connection of its own.
	do := func(trusted *x509.CertPool, h2 bool, method, target string, body []byte, headers ...string) (*http.Response, string, error) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: h2}
		defer transport.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), method, base+target, bytes.NewReader(body))
		need.NoError(t, err)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			return nil, "", err
		}
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		return resp, string(got), err
	}
	asJSON := []string{"Content-Type", "application/json"}
	for _, h2 := range []bool{true, false} {
		check := func(what string, status int, contains, method, target string, body []byte, headers ...string) string {
			t.Helper()
			resp, got, err := do(trusted, h2, method, target, body, headers...)
			if err != nil {
				t.Fatalf("%s (HTTP/2 %v): %v", what, h2, err)
			}
			if resp.StatusCode != status || !strings.Contains(got, contains) || h2 != (resp.ProtoMajor == 2) {
				t.Errorf("%s: %s %d %.300s", what, resp.Proto, resp.StatusCode, got)
			}
			return got
		}
		check("health", 200, `"ok"`, "GET", "/health", nil)
		check("the server's own page", 200, "workspaces", "GET", "/workspaces", nil, "Origin", base)
		check("a page by plain HTTP", 403, "origin_not_allowed", "GET", "/workspaces", nil, "Origin", "http"+strings.TrimPrefix(base, "https"))
		check("the repositories", 200, "repositories", "GET", "/git/", nil)
		check("a body over the limit", 413, "body_too_large", "POST", "/tasks", bytes.Repeat([]byte(" "), 3<<20), asJSON...)
		task := check("a task", 201, "task_id", "POST", "/tasks", []byte(`{"goal":"g","kind":"virtual"}`), asJSON...)
		_, id, _ := strings.Cut(task, `"task_id":"`)
		id, _, _ = strings.Cut(id, `"`)
		data := bytes.Repeat([]byte("0123456789"), 100_000)
		check("a write", 201, "commit", "PUT", "/tasks/"+id+"/content?path=f", data, "Content-Type", "application/octet-stream")
		check("a read", 200, string(data), "GET", "/tasks/"+id+"/content?path=f", nil)
	}

	// Plain HTTP is refused, and says so.
	resp, err := http.Get("http" + strings.TrimPrefix(base, "https") + "/health")
	need.NoError(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("plain HTTP: %d", resp.StatusCode)
	}

	// The owner's own verbs.
	if status, out, errOut := harness.Run(t, nil, "workspaces", "--data-dir", s.DataDir); status != 0 {
		t.Errorf("umbra workspaces: %d %s %s", status, out, errOut)
	}

	// A renewed certificate; then one that cannot be used, which changes nothing.
	renewed := writeCertificate(t, cert, key, "two")
	if _, _, err := do(renewed, true, "GET", "/health", nil); err != nil {
		t.Errorf("the new certificate is not used: %v", err)
	}
	if _, _, err := do(trusted, true, "GET", "/health", nil); err == nil {
		t.Error("the old certificate is still used")
	}
	need.NoError(t, os.WriteFile(cert, []byte("none"), 0o600))
	if _, _, err := do(renewed, true, "GET", "/health", nil); err != nil {
		t.Errorf("after a broken file: %v", err)
	}
	s.Stop()
}

func TestHTTPSRefusedStart(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	writeCertificate(t, path("a.crt"), path("a.key"), "a")
	writeCertificate(t, path("b.crt"), path("b.key"), "b")
	for _, c := range []struct{ cert, key, says string }{
		{path("a.crt"), "", "tls.key"},
		{"", path("a.key"), "tls.cert"},
		{path("none"), path("a.key"), "none"},
		{path("a.crt"), path("b.key"), "b.key"},
		{path("a.key"), path("a.key"), "a.key"},
	} {
		status, out, errOut := harness.Run(t, []string{"UMBRA_TLS_CERT=" + c.cert, "UMBRA_TLS_KEY=" + c.key},
			"serve", "--listen", "127.0.0.1:0", "--data-dir", path("data"))
		if status != 2 || out != "" || !strings.Contains(errOut, c.says) {
			t.Errorf("%q and %q: status %d, %q, %q", c.cert, c.key, status, out, errOut)
		}
	}
}

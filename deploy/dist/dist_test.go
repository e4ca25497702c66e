package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/blakesmith/ar"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// here is a Linux system: what is packed does not depend on what runs the test.
var here = system{"linux", runtime.GOARCH}

// program is what is packed: this test, which is smaller than umbra.
func program(t *testing.T) string {
	t.Helper()
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// pack packs the program with the documents of the real one, as if it were here's.
func pack(t *testing.T, out string) {
	t.Helper()
	umbra, err := filepath.Abs(os.Getenv("UMBRA_BIN"))
	if err != nil || os.Getenv("UMBRA_BIN") == "" {
		t.Fatal("UMBRA_BIN does not name the program")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	r := &release{root: root, out: out, version: "v1.2.3-4-gabcdef0", when: time.Unix(1_700_000_000, 0).UTC(), umbra: umbra, systems: []system{here}}
	work := t.TempDir()
	docs, err := r.documents(work)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.pack(map[system]string{here: program(t)}, docs, work); err != nil {
		t.Fatal(err)
	}
}

// shared is the directory that packed returns, made by the first test.
var shared string

func TestMain(m *testing.M) {
	status := m.Run()
	if shared != "" {
		os.RemoveAll(shared)
	}
	os.Exit(status)
}

func packed(t *testing.T) string {
	t.Helper()
	if shared == "" {
		dir, err := os.MkdirTemp("", "umbra-dist-test-")
		if err != nil {
			t.Fatal(err)
		}
		pack(t, dir)
		shared = dir
	}
	return shared
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// tarred lists the entries of a tar file, optionally compressed.
func tarred(t *testing.T, raw []byte) (names []string, data map[string][]byte, modes map[string]int64) {
	t.Helper()
	var in io.Reader = bytes.NewReader(raw)
	if bytes.HasPrefix(raw, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(in)
		if err != nil {
			t.Fatal(err)
		}
		in = z
	}
	data, modes = map[string][]byte{}, map[string]int64{}
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, data, modes
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.ModTime.Unix() != 1_700_000_000 {
			t.Errorf("%s is of %s", h.Name, h.ModTime)
		}
		names = append(names, h.Name)
		modes[h.Name] = h.Mode
		if data[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTwiceTheSameBytes(t *testing.T) {
	a, b := packed(t), t.TempDir()
	pack(t, b)
	for _, pair := range [][2]string{{a, b}, {b, a}} {
		entries, err := os.ReadDir(pair[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !bytes.Equal(read(t, filepath.Join(pair[0], e.Name())), read(t, filepath.Join(pair[1], e.Name()))) {
				t.Errorf("%s differs", e.Name())
			}
		}
	}
}

func TestArchive(t *testing.T) {
	out := packed(t)
	top := "umbra-v1.2.3-4-gabcdef0-linux-" + here.arch + "/"
	_, data, modes := tarred(t, read(t, filepath.Join(out, strings.TrimSuffix(top, "/")+".tar.gz")))
	for _, name := range []string{"LICENSE", "NOTICE", "README.md", "bin/umbra", "share/bash-completion/completions/umbra", "share/fish/vendor_completions.d/umbra.fish",
		"share/zsh/site-functions/_umbra", "share/man/man1/umbra.1", "share/man/man1/umbra-serve.1", "share/doc/umbra/LICENSES.txt"} {
		if len(data[top+name]) == 0 {
			t.Errorf("%s is missing", name)
		}
	}
	if !bytes.Equal(data[top+"bin/umbra"], read(t, program(t))) || modes[top+"bin/umbra"] != 0o755 {
		t.Error("bin/umbra is not the program, or cannot be run")
	}
	for line := range strings.Lines(string(read(t, filepath.Join(out, "SHA256SUMS")))) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		is := sha256.Sum256(read(t, filepath.Join(out, name)))
		if hex.EncodeToString(is[:]) != sum {
			t.Errorf("the checksum of %s is wrong", name)
		}
	}
}

func TestDebian(t *testing.T) {
	raw := read(t, filepath.Join(packed(t), "umbra_1.2.3+4+gabcdef0_"+here.arch+".deb"))
	parts := map[string][]byte{}
	for r := ar.NewReader(bytes.NewReader(raw)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		part, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		parts[strings.TrimSuffix(h.Name, "/")] = part
	}
	_, control, _ := tarred(t, parts["control.tar.gz"])
	for _, want := range []string{"Package: umbra\n", "Version: 1.2.3+4+gabcdef0\n", "Architecture: " + here.arch + "\n", "Recommends: git"} {
		if !strings.Contains(string(control["./control"]), want) {
			t.Errorf("control has no %q:\n%s", want, control["./control"])
		}
	}
	names, data, modes := tarred(t, parts["data.tar.gz"])
	for _, want := range []string{"usr/bin/umbra", "usr/share/man/man1/umbra.1.gz", "usr/share/bash-completion/completions/umbra", "usr/share/zsh/vendor-completions/_umbra",
		"usr/share/doc/umbra/copyright", "usr/share/doc/umbra/LICENSE", "usr/share/doc/umbra/NOTICE", "usr/share/doc/umbra/README.md"} {
		if !slices.Contains(names, "./"+want) || len(data["./"+want]) == 0 {
			t.Errorf("%s is missing", want)
		}
	}
	if modes["./usr/bin/umbra"] != 0o755 {
		t.Errorf("the program's mode is %o", modes["./usr/bin/umbra"])
	}
}

func TestDebianVersion(t *testing.T) {
	when := time.Unix(1_700_000_000, 0).UTC()
	for version, want := range map[string]string{
		"v1.2.0": "1.2.0", "v1.2.0-rc1": "1.2.0~rc1", "v1.2.0-beta.2": "1.2.0~beta.2", "v1.2.0-rc1-4-gabcdef0": "1.2.0~rc1+4+gabcdef0",
		"v1.2.0-4-gabcdef0-dirty": "1.2.0+4+gabcdef0+dirty", "abcdef0": "0~20231114221320.abcdef0",
	} {
		if got := (&release{version: version, when: when}).debianVersion(); got != want {
			t.Errorf("%s is %s, want %s", version, got, want)
		}
	}
}

func TestImage(t *testing.T) {
	names, data, _ := tarred(t, read(t, filepath.Join(packed(t), "umbra-v1.2.3-4-gabcdef0-image.tar")))
	dir := t.TempDir()
	for _, name := range names {
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(filepath.Join(dir, name), 0o777); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(filepath.Join(dir, name), data[name], 0o666); err != nil {
			t.Fatal(err)
		}
	}
	at, err := layout.FromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	outer, err := at.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(outer); err != nil {
		t.Error(err)
	}
	list, err := outer.IndexManifest()
	if err != nil || len(list.Manifests) != 1 || list.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "v1.2.3-4-gabcdef0" {
		t.Fatalf("%+v, %v", list, err)
	}
	index, err := outer.ImageIndex(list.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	images, err := index.IndexManifest()
	if err != nil || len(images.Manifests) != 1 || images.Manifests[0].Platform.Architecture != here.arch {
		t.Fatalf("%+v, %v", images, err)
	}
	img, err := index.Image(images.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil || config.Config.User != "10001" || config.Config.Entrypoint[0] != "/usr/bin/umbra" {
		t.Errorf("%+v, %v", config, err)
	}
}

func TestSBOM(t *testing.T) {
	var bom cdx.BOM
	raw := read(t, filepath.Join(packed(t), "umbra-v1.2.3-4-gabcdef0-linux-"+here.arch+".cdx.json"))
	if err := cdx.NewBOMDecoder(bytes.NewReader(raw), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	refs := map[string]bool{}
	for _, c := range *bom.Components {
		if c.Name == "" || c.Version == "" || refs[c.BOMRef] {
			t.Errorf("%+v", c)
		}
		refs[c.BOMRef] = true
	}
	info, err := buildinfo.ReadFile(program(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range info.Deps {
		if !refs["pkg:golang/"+m.Path+"@"+m.Version] {
			t.Errorf("%s %s is missing", m.Path, m.Version)
		}
	}
	for _, name := range []string{"pkg:npm/preact@", "pkg:npm/luau-web@", "pkg:golang/std@"} {
		if !strings.Contains(string(raw), `"purl": "`+name) {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestTwoBuilds compiles the program in two places.
func TestTwoBuilds(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var sums [][32]byte
	for range 2 {
		dir := filepath.Join(t.TempDir(), "umbra")
		if out, err := exec.Command("git", "clone", "-q", "--no-hardlinks", root, dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, made := range []string{"internal/sandbox/luau/engine/luau.wasm", "httpapi/ui/dist"} {
			if out, err := exec.Command("cp", "-R", filepath.Join(root, made), filepath.Dir(filepath.Join(dir, made))).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		r := &release{root: dir, version: "v1"}
		built := filepath.Join(t.TempDir(), "umbra")
		if err := r.build(system{runtime.GOOS, runtime.GOARCH}, built); err != nil {
			t.Fatal(err)
		}
		sums = append(sums, sha256.Sum256(read(t, built)))
	}
	if sums[0] != sums[1] {
		t.Errorf("two builds are not the same: %x", sums)
	}
}

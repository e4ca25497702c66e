package main

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user runs the server in the image, as in Containerfile.
const user = 10001

// image writes an OCI image layout as a tar file: one index, with an image for
// each Linux system. The program is static, so there is nothing below it. It has
// no git; Containerfile builds an image that has.
func (r *release) image(programs map[system]string, docs []file, work string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	count := 0
	for _, s := range r.systems {
		if s.os != "linux" {
			continue
		}
		count++
		program, err := os.ReadFile(programs[s])
		if err != nil {
			return err
		}
		img, err := r.imageOf(s, program, docs)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img,
			Descriptor: v1.Descriptor{MediaType: types.OCIManifestSchema1, Platform: &v1.Platform{OS: s.os, Architecture: s.arch}}})
	}
	if count == 0 {
		return nil
	}
	at, err := layout.Write(work, empty.Index)
	if err != nil {
		return err
	}
	if err := at.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version})); err != nil {
		return err
	}
	var list []file
	err = filepath.WalkDir(work, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(work, name)
		list = append(list, file{name: filepath.ToSlash(rel), data: raw})
		return err
	})
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := writeTar(&b, sorted(list), r.when); err != nil {
		return err
	}
	return r.write("umbra-"+r.version+"-image.tar", b.Bytes())
}

func (r *release) imageOf(s system, program []byte, docs []file) (v1.Image, error) {
	list := []file{
		{name: "data", dir: true, mode: 0o700, owner: user},
		{name: "etc/group", data: []byte("root:x:0:\numbra:x:10001:\n")},
		{name: "etc/passwd", data: []byte("root:x:0:0:root:/:/sbin/nologin\numbra:x:10001:10001:umbra:/home/umbra:/sbin/nologin\n")},
		{name: "home/umbra", dir: true, mode: 0o700, owner: user},
		{name: "projects", dir: true, owner: user},
		{name: "srv/umbra", dir: true, owner: user},
		{name: "tmp", dir: true, mode: 0o1777},
		{name: "usr/bin/umbra", data: program, mode: 0o755},
	}
	for _, f := range docs {
		switch filepath.Base(f.name) {
		case "LICENSE", "NOTICE", "README.md", "LICENSES.txt":
			f.name = "usr/" + f.name
			list = append(list, f)
		}
	}
	var b bytes.Buffer
	if err := writeTar(&b, sorted(list), r.when); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.when}, CreatedBy: "dist"}}); err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = s.os, s.arch, v1.Time{Time: r.when}
	config.Config = v1.Config{
		User: "10001", WorkingDir: "/srv/umbra", Entrypoint: []string{"/usr/bin/umbra"}, Cmd: []string{"serve"},
		Env: []string{"PATH=/usr/bin", "HOME=/home/umbra", "UMBRA_DATA_DIR=/data", "UMBRA_LISTEN=0.0.0.0:8080",
			"UMBRA_WORKSPACE_DIR=/srv/umbra/code", "UMBRA_OUTPUT_DIR=/srv/umbra/output"},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}}, Volumes: map[string]struct{}{"/data": {}},
		Labels: map[string]string{"org.opencontainers.image.title": "umbra", "org.opencontainers.image.version": r.version, "org.opencontainers.image.licenses": "Apache-2.0",
			"io.modelcontextprotocol.server.name": "io.github.umbra/umbra"},
	}
	return mutate.ConfigFile(img, config)
}

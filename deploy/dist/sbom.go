package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"os"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes what is in a program, as CycloneDX JSON: the modules that the
// program says it was linked from, Go's standard library, and the npm packages
// that it embeds. It has no serial number: the same program has the same SBOM.
func (r *release) writeSBOM(s system, program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(raw)
	main := cdx.Component{BOMRef: "umbra", Type: cdx.ComponentTypeApplication, Name: "umbra", Version: r.version,
		Licenses:   &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		Properties: &[]cdx.Property{{Name: "umbra:os", Value: s.os}, {Name: "umbra:arch", Value: s.arch}}}
	library := func(purl, name, version string) cdx.Component {
		return cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: name, Version: version, PackageURL: purl}
	}
	std := strings.TrimPrefix(info.GoVersion, "go")
	list := []cdx.Component{library("pkg:golang/std@"+std, "std", std)}
	for _, m := range info.Deps {
		list = append(list, library("pkg:golang/"+m.Path+"@"+m.Version, m.Path, m.Version))
	}
	for _, folder := range npmFolders {
		packages, err := npmComponents(r.root, folder)
		if err != nil {
			return err
		}
		for _, p := range packages {
			list = append(list, library("pkg:npm/"+strings.Replace(p.name, "@", "%40", 1)+"@"+p.version, p.name, p.version))
		}
	}
	slices.SortFunc(list, func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	refs := make([]string, len(list))
	for i, c := range list {
		refs[i] = c.BOMRef
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: r.when.Format(time.RFC3339), Component: &main}
	bom.Components = &list
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	var b bytes.Buffer
	if err := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return r.write(r.name(s)+".cdx.json", b.Bytes())
}

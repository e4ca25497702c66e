package js

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// importMapFile is at the workspace's root.
const importMapFile = "import_map.json"

// importMap is an import map (HTML standard, "Import maps") whose addresses are
// paths from the workspace's root, or "node:" names.
type importMap struct {
	imports map[string]string
	scopes  map[string]map[string]string
	order   []string // of scopes, the longest first
}

// importMap reads the map once; none is an empty one.
func (k *compiler) importMap() (*importMap, error) {
	if k.loaded {
		return k.maps, k.mapping
	}
	k.loaded = true
	switch data, fault := k.read(importMapFile); fault {
	case "":
		k.maps, k.mapping = parseImportMap(data)
	case "ENOENT":
		k.maps = &importMap{}
	default:
		k.mapping = errors.New("it cannot be read")
	}
	return k.maps, k.mapping
}

func parseImportMap(data []byte) (*importMap, error) {
	var raw struct {
		Imports map[string]string            `json:"imports"`
		Scopes  map[string]map[string]string `json:"scopes"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, errors.New("it is not an import map")
	}
	m := &importMap{imports: addresses(raw.Imports), scopes: map[string]map[string]string{}}
	for scope, imports := range raw.Scopes {
		m.scopes[fromRoot(scope)] = addresses(imports)
	}
	m.order = slices.SortedFunc(maps.Keys(m.scopes), func(a, b string) int { return len(b) - len(a) })
	return m, nil
}

func addresses(raw map[string]string) map[string]string {
	out := make(map[string]string, len(raw))
	for key, address := range raw {
		if strings.HasPrefix(key, "./") || strings.HasPrefix(key, "../") {
			key = fromRoot(key)
		}
		out[key] = fromRoot(address)
	}
	return out
}

// fromRoot makes "./lib/" "lib/"; what is no relative address stays.
func fromRoot(address string) string {
	address = strings.TrimPrefix(address, "file:///workspace/")
	if !strings.HasPrefix(address, "./") && !strings.HasPrefix(address, "../") {
		return address
	}
	clean := path.Clean(address)
	if strings.HasSuffix(address, "/") && clean != "." {
		clean += "/"
	}
	if clean == "." {
		clean = ""
	}
	return clean
}

// resolve gives what the map makes of a specifier, if it says anything of it.
// An address that leads out of the workspace is for the caller to refuse.
func (m *importMap) resolve(importer, specifier string) (target string, mapped bool, err error) {
	key := specifier
	if strings.HasPrefix(specifier, "./") || strings.HasPrefix(specifier, "../") {
		key = path.Join(path.Dir(importer), specifier)
	}
	for _, scope := range m.order {
		if importer == scope || strings.HasSuffix(scope, "/") && strings.HasPrefix(importer, scope) || scope == "" {
			if target, ok, err := match(m.scopes[scope], key); ok || err != nil {
				return target, ok, err
			}
		}
	}
	return match(m.imports, key)
}

// match takes the exact key, else the longest that ends in "/" and begins it.
func match(imports map[string]string, key string) (string, bool, error) {
	if target, ok := imports[key]; ok {
		return target, true, nil
	}
	best := ""
	for prefix := range imports {
		if strings.HasSuffix(prefix, "/") && strings.HasPrefix(key, prefix) && len(prefix) > len(best) {
			best = prefix
		}
	}
	if best == "" {
		return "", false, nil
	}
	base, rest := imports[best], strings.TrimPrefix(key, best)
	if base != "" && !strings.HasSuffix(base, "/") {
		return "", false, fmt.Errorf("import_map.json: the address of %q must end in \"/\"", best)
	}
	// By the standard what follows a prefix may not climb out of its address.
	if joined := path.Join(base, rest); base != "" && !strings.HasPrefix(joined+"/", path.Clean(base)+"/") {
		return "", false, fmt.Errorf("%q climbs out of what import_map.json maps it to", key)
	}
	return base + rest, true, nil
}

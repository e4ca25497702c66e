package httpapi

import (
	"encoding/json"
	"fmt"
	"maps"

	"go.yaml.in/yaml/v3"
)

// mergeOpenAPI makes one document of the dialects' fragments; the first is the
// frame's and has the document's head. A path or component that occurs twice is
// an error. The frame's own answers of the routes are added.
func mergeOpenAPI(dialects []Dialect, routes []*Route, version string) ([]byte, error) {
	doc := map[string]any{}
	for i, d := range dialects {
		var part map[string]any
		if err := yaml.Unmarshal(d.OpenAPI(), &part); err != nil {
			return nil, fmt.Errorf("openapi of %T: %w", d, err)
		}
		if i == 0 {
			doc = part
			continue
		}
		if err := addPart(doc, part); err != nil {
			return nil, fmt.Errorf("openapi of %T: %w", d, err)
		}
	}
	if info, ok := doc["info"].(map[string]any); ok {
		info["version"] = version
	}
	addOwnAnswers(doc, routes)
	addCluster(doc, routes)
	return json.Marshal(doc)
}

func addPart(doc, part map[string]any) error {
	tags, _ := doc["tags"].([]any)
	more, _ := part["tags"].([]any)
	doc["tags"] = append(tags, more...)
	if err := addNames(section(doc, "paths"), part["paths"]); err != nil {
		return err
	}
	components, _ := part["components"].(map[string]any)
	for kind, names := range components {
		if err := addNames(section(section(doc, "components"), kind), names); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	return nil
}

func section(doc map[string]any, name string) map[string]any {
	m, ok := doc[name].(map[string]any)
	if !ok {
		m = map[string]any{}
		doc[name] = m
	}
	return m
}

func addNames(to map[string]any, from any) error {
	names, _ := from.(map[string]any)
	for name := range names {
		if _, twice := to[name]; twice {
			return fmt.Errorf("%s occurs twice", name)
		}
	}
	maps.Copy(to, names)
	return nil
}

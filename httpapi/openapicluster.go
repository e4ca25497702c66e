package httpapi

import "strings"

// addCluster describes the headers of a cluster on the operations that have an id in
// their path, where a dialect has defined them: Umbra-Owner and the others
// (httpapi/forward).
func addCluster(doc map[string]any, routes []*Route) {
	components := section(doc, "components")
	headers, _ := components["headers"].(map[string]any)
	if headers["UmbraOwner"] == nil {
		return
	}
	shared := section(components, "responses")
	ref := func(kind, name string) map[string]any {
		return map[string]any{"$ref": "#/components/" + kind + "/" + name}
	}
	for _, rt := range routes {
		if rt.About == nil || len(rt.params) == 0 || rt.AnyHost || rt.Internal {
			continue
		}
		item, _ := section(doc, "paths")[strings.ReplaceAll(rt.Pattern, "...}", "}")].(map[string]any)
		op, _ := item[strings.ToLower(rt.Method)].(map[string]any)
		if op == nil {
			continue
		}
		params, _ := op["parameters"].([]any)
		asked := []string{"UmbraDirect", "UmbraRedirect"}
		if rt.Method == "GET" {
			asked = append(asked, "UmbraMinSeq", "UmbraStrict")
		}
		for _, name := range asked {
			params = append(params, ref("parameters", name))
		}
		op["parameters"] = params
		responses, _ := op["responses"].(map[string]any)
		for status, r := range responses {
			answer, _ := r.(map[string]any)
			if ref, is := answer["$ref"].(string); is {
				answer, _ = shared[strings.TrimPrefix(ref, "#/components/responses/")].(map[string]any)
			}
			if !strings.HasPrefix(status, "2") || answer == nil {
				continue
			}
			headers, _ := answer["headers"].(map[string]any)
			if headers == nil {
				headers = map[string]any{}
			}
			for header, name := range map[string]string{"Umbra-Owner": "UmbraOwner", "Umbra-Seq": "UmbraSeq", "Umbra-Stale": "UmbraStale"} {
				headers[header] = ref("headers", name)
			}
			answer["headers"] = headers
		}
	}
}

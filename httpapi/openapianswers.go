package httpapi

import (
	"net/http"
	"strconv"
	"strings"
)

// ownAnswer is an error that the frame itself gives on some routes, before the
// dialect sees the request or in its place.
type ownAnswer struct {
	status int
	text   string
	where  func(rt *Route, op map[string]any) bool
}

// ownAnswers are those of the middleware, and those that follow from what a
// route is: no dialect has to write them into its fragment.
func ownAnswers() []ownAnswer {
	reads := func(rt *Route) bool { return rt.Body != BodyNone }
	isJSONBody := func(rt *Route) bool { return rt.Body == BodyJSON || rt.Body == BodyOptionalJSON }
	named := func(rt *Route) bool { return len(rt.params) > 0 || rt.rest != "" }
	return []ownAnswer{
		{http.StatusBadRequest, "The request makes no sense: a malformed body, id, path, header or parameter.",
			func(rt *Route, op map[string]any) bool {
				return reads(rt) || named(rt) || rt.Changes || !rt.AnyQuery || op["parameters"] != nil
			}},
		{http.StatusUnauthorized, "Tokens are on, and there is none or one that is not known.",
			func(rt *Route, _ map[string]any) bool { return rt.Access != AccessPublic }},
		{http.StatusForbidden, "Not allowed: by Host or Origin, the caller's user, the token's scope and roots, or the file system.",
			func(rt *Route, _ map[string]any) bool { return !rt.AnyHost }},
		{http.StatusNotFound, "It does not exist, or the caller may not see it.",
			func(rt *Route, _ map[string]any) bool { return named(rt) || rt.Changes }},
		{http.StatusRequestTimeout, "The body stopped coming.",
			func(rt *Route, _ map[string]any) bool { return reads(rt) }},
		{http.StatusConflict, "What is there does not allow it: a task that is over, a workspace that is missing, a name that is taken, a conflict.",
			func(rt *Route, _ map[string]any) bool { return rt.Changes }},
		{http.StatusRequestEntityTooLarge, "The body is over the route's limit.",
			func(rt *Route, _ map[string]any) bool { return reads(rt) }},
		{http.StatusUnsupportedMediaType, "The body is not JSON by its Content-Type.",
			func(rt *Route, _ map[string]any) bool { return isJSONBody(rt) }},
		{http.StatusUnprocessableEntity, "The Idempotency-Key was used for another request.",
			func(rt *Route, _ map[string]any) bool { return rt.Changes }},
		{http.StatusTooManyRequests, "Over a limit of requests a minute; Retry-After says when to come again.",
			func(rt *Route, _ map[string]any) bool { return !rt.AnyHost }},
		{http.StatusServiceUnavailable, "The server is stopping, or lacks something for now.",
			func(rt *Route, _ map[string]any) bool { return !rt.AnyHost }},
		{http.StatusInsufficientStorage, "No space is left.",
			func(rt *Route, _ map[string]any) bool { return rt.Changes }},
	}
}

// addOwnAnswers writes the frame's answers into the operations of its routes,
// in the shape of the operation's default answer. What a fragment says itself
// stays.
func addOwnAnswers(doc map[string]any, routes []*Route) {
	answers := ownAnswers()
	for _, rt := range routes {
		item, _ := section(doc, "paths")[strings.ReplaceAll(rt.Pattern, "...}", "}")].(map[string]any)
		op, _ := item[strings.ToLower(rt.Method)].(map[string]any)
		responses, _ := op["responses"].(map[string]any)
		fallback, _ := responses["default"].(map[string]any)
		ref, isRef := fallback["$ref"]
		if !isRef {
			continue
		}
		for _, a := range answers {
			status := strconv.Itoa(a.status)
			if _, listed := responses[status]; !listed && a.where(rt, op) {
				// The description wins over that of the component (OpenAPI 3.1, Reference Object).
				responses[status] = map[string]any{"$ref": ref, "description": a.text}
			}
		}
	}
}

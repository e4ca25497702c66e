// Package httpapi is the frame of the HTTP side: the server, the router, the
// middleware that every request passes, strict reading of requests, error
// shapes, ETags, server-sent events and the OpenAPI document.
//
// The dialects (httpapi/tasks, httpapi/workspaces …) use it, one package each, and
// never import each other; internal/server makes them. gin is used here and in the
// dialects alone.
//
// Invariants:
//   - a request passes the middleware in one order (middleware.go), whatever
//     its route, also when it has none;
//   - a handler returns an error and never chooses a status: the table in
//     problem.go does;
//   - nothing that a client sends is decoded twice: path parameters come from
//     the path as it was sent.
package httpapi

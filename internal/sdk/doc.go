// Package sdk makes functions for scripts of the operations in OpenAPI
// documents (contracts/scripts.md, sdk): a script's one way to the network.
//
// Invariants: a request goes to the origin that the owner's settings name, and
// nowhere else: no redirect, proxy, header or argument of a script changes
// scheme, host or port. What the settings put into headers is in no error, no
// declaration and no value that the package makes.
package sdk

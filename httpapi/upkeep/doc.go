// Package upkeep has the routes behind the owner's verbs: gc and disk use,
// purge, backup, tokens. All are AccessOwner: where tokens are on, no token
// reaches them. What takes long answers as httpapi.ServeWork does.
//
// One file and one dialect (its own OpenAPI fragment) a verb; the work itself is
// in internal/*.
package upkeep

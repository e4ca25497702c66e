// Package tool describes the tools to a model: names, descriptions and
// schemas, which of them follow from a table of mounts, the formats in which
// model APIs take them, and the reading of a call's arguments.
//
// Invariants: a schema is an object whose properties have one scalar type each
// (some model APIs lose a whole session over anything else); a tool is offered
// if and only if at least one mount allows it.
package tool

// Package baseline records the directory as it is before the first change. Of a
// checkout it copies git's own objects, as far as git's index proves what they are.
package baseline

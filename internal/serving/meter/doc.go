// Package meter limits what a program does with the input of a client: how much it works, how many bytes it keeps, how
// deep it nests, and for how long.
//
// Whoever reads a client's input makes one [Meter] for it and hands the meter to everything that handles the input:
// parsers, compilers, and operations on lists. They charge the meter before they do the work. The meter returns an
// error when a limit is reached or the client has left. This package does not know what the work is.
package meter

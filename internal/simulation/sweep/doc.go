// Package sweep runs a grid of scenarios: systems × block sizes × rates × seeds, several at a time. It keeps
// finished results in a store, so that an interrupted sweep can resume. sweep.csv has a row for each job. Its bytes
// do not depend on how often the sweep was interrupted.
//
// A single run is in package scenario.
package sweep

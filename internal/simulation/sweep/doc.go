// Package sweep runs a grid of scenarios: systems × block sizes × rates × seeds, several at a time. A store keeps what is
// finished, from which an interrupted sweep resumes. sweep.csv, a row for each job, has the same bytes however often the
// sweep was interrupted.
//
// A single run is in package scenario.
package sweep

// Package compare plays a trace on a submission and on the oracle, and says
// where the two differ first.
//
// The submission's memory is followed by address, each of which may lead
// anywhere; where it leads outside a chunk that the submission has allocated,
// that is the difference.
package compare

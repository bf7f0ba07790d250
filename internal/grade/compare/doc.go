// Package compare plays a trace on a submission and on the oracle, and reports
// the first difference.
//
// The submission's memory is followed by address, each of which may lead
// anywhere; where it leads outside a chunk that the submission has allocated,
// that is the difference.
package compare

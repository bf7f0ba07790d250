// Package gradescope is llmgrade inside Gradescope: the zip that staff upload,
// and the run inside its container, from what was uploaded to results.json.
//
// Package grade computes the points. This package reports them in
// Gradescope's terms, so that a student sees nothing of the hidden tests
// before the due date. The clock is only read to measure: a submission that is
// graded again gets the same result.
//
// The contract is Gradescope's "Autograder Specifications" and "Submission
// Metadata", https://gradescope-autograders.readthedocs.io.
package gradescope

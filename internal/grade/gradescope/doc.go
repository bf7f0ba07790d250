// Package gradescope is llmgrade inside Gradescope: the zip that staff upload,
// and the run inside its container, from what was uploaded to results.json.
//
// What a submission is worth is package grade's to say. Here it is said in
// Gradescope's terms, and so that a student sees of the hidden tests nothing
// before the due date. No clock is read but to measure: a submission that is
// graded again gets the same result.
//
// The contract is Gradescope's "Autograder Specifications" and "Submission
// Metadata", https://gradescope-autograders.readthedocs.io.
package gradescope

// Package directed has the traces that follow the handout task by task: a name,
// the sentence that is tested, and the calls. The names are those of the C
// suite (grader/suite) where both test the same.
package directed

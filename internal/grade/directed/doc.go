// Package directed is the traces that follow the handout task by task: a name,
// the sentence that is at stake, and what to do. The names are those of the C
// suite (grader/suite) where both ask the same.
package directed

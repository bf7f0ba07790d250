package page

import (
	"io"

	"llmmemory/internal/grade/class"
	"llmmemory/internal/terminal"
)

// Write writes the page of an entry: what its report says, or why there is none.
func (e Entry) Write(w io.Writer) error {
	if e.Err != nil {
		return Trouble(w, e.Name, e.Err, e.Override)
	}
	return Student(w, e.Report, e.Name, e.Override)
}

// Trouble writes the page of a submission that was not graded because the grader
// failed, with the error. It has the anchor rejected, as a student's page has.
func Trouble(w io.Writer, name string, err error, o *class.Override) error {
	return write(w, troubleLayout, struct {
		Name, Error string
		Override    *class.Override // what staff decided; nil: nothing
	}{shown(name), terminal.Visible(err.Error()), o})
}

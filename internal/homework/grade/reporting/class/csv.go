package class

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/terminal"
)

// WriteCSV writes a table with a line for each student.
func WriteCSV(w io.Writer, all []Result) error {
	c := csv.NewWriter(w)
	head := []string{"name", "file", "score", "max_score"}
	for task := 1; task <= grade.Tasks; task++ {
		head = append(head, fmt.Sprintf("task%d", task))
	}
	head = append(head, "rejected", "failed", "seconds", "trouble", "reason", "rules", "graded_score", "comment", "notes")
	if err := c.Write(head); err != nil {
		return err
	}
	for i := range all {
		if err := c.Write(all[i].line()); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// line returns the row of a result in the CSV file. The cell of the score is empty if there is no score.
func (r *Result) line() []string {
	score, maxScore, graded := "", "", ""
	if points, known := r.Score(); known {
		score = number(points)
	}
	tasks := make([]string, grade.Tasks)
	rejected, failed, seconds, trouble, reason, rules, file := "", "", "", "", "", r.Rules, r.File
	if r.Err != nil {
		trouble = text(brief(r.Err.Error()))
	}
	if r.Report != nil {
		file, maxScore, graded, rules = r.Report.File, number(r.Report.MaxScore), number(r.Report.Score), r.Report.Rules
		for i, points := range r.Report.ByTask() {
			tasks[i] = number(points)
		}
		if r.Report.Rejected != nil {
			rejected, reason = string(r.Report.Rejected.Stage), text(brief(r.Report.Rejected.Reason()))
		}
		failed, seconds = text(strings.Join(r.Report.Failed(), " ")), number(r.Report.Time.Seconds())
	}
	comment := ""
	if r.Override != nil {
		comment = text(brief(r.Override.Comment))
	}
	line := append([]string{text(r.Name), text(file), score, maxScore}, tasks...)
	return append(line, rejected, failed, seconds, trouble, reason, rules, graded, comment, text(brief(r.Remarks())))
}

// Remarks returns the remarks for staff. A student must not see them, because they name other students.
func (r *Result) Remarks() string {
	var all []string
	if len(r.Same) > 0 {
		all = append(all, "the same file as that of "+terminal.VisibleName(strings.Join(r.Same, ", ")))
	}
	if r.Report != nil && r.Report.Header != "" {
		all = append(all, r.Report.Header)
	}
	return strings.Join(all, "; ")
}

const maxReason = 300 // characters of a cell

func brief(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if utf8.RuneCountInString(s) > maxReason {
		s = string([]rune(s)[:maxReason]) + " ..."
	}
	return s
}

// text returns s as a cell of the CSV file. It puts an apostrophe before s if a spreadsheet would read s as a formula,
// and makes control characters visible.
func text(s string) string {
	shown := terminal.VisibleName(s)
	if s != "" && strings.ContainsAny(string([]rune(s)[:1]), "=+-@\t\r\n＝＋－＠") {
		return "'" + shown
	}
	return shown
}

func number(n float64) string { return strconv.FormatFloat(n, 'f', 2, 64) }

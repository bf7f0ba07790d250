package class

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"llmmemory/internal/grade"
)

// WriteCSV writes a line for each student: what a spreadsheet of grades needs.
func WriteCSV(w io.Writer, all []Result) error {
	c := csv.NewWriter(w)
	head := []string{"name", "file", "score", "max_score"}
	for task := 1; task <= grade.Tasks; task++ {
		head = append(head, fmt.Sprintf("task%d", task))
	}
	if err := c.Write(append(head, "rejected", "failed", "seconds", "trouble")); err != nil {
		return err
	}
	for _, r := range all {
		if r.Err != nil { // no score, which is not a score of 0
			line := make([]string, len(head)+4)
			line[0], line[1], line[len(line)-1] = text(r.Name), text(r.File), text(r.Err.Error())
			if err := c.Write(line); err != nil {
				return err
			}
			continue
		}
		line := []string{text(r.Name), text(r.Report.File), number(r.Report.Score), number(r.Report.MaxScore)}
		for _, points := range r.Report.ByTask() {
			line = append(line, number(points))
		}
		rejected := ""
		if r.Report.Rejected != nil {
			rejected = string(r.Report.Rejected.Stage)
		}
		line = append(line, rejected, strings.Join(r.Report.Failed(), " "), number(r.Report.Time.Seconds()), "")
		if err := c.Write(line); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// text keeps a spreadsheet from taking a name for a formula.
func text(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}

func number(n float64) string { return strconv.FormatFloat(n, 'f', 2, 64) }

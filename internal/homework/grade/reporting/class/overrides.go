package class

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/unicode/norm"

	"llmmemory/internal/terminal"
)

// An Override is a decision of staff about a student.
type Override struct {
	Student string
	Points  *float64 // in place of the grader's; nil: the grader's count
	Comment string
	line    int
}

// Overrides are the decisions about a class.
type Overrides []Override

// ErrOverrides is wrapped by the errors in overrides.csv.
var ErrOverrides = errors.New("not usable")

// OverridesFile is the name of a file that staff may put into the folder of the pages. llmgrade never changes it.
const OverridesFile = "overrides.csv"

// Overrides reads overrides.csv. Without the file there are none.
func (f Folder) Overrides() (Overrides, error) {
	path := filepath.Join(f.Path, OverridesFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := parseOverrides(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

func parseOverrides(text []byte) (Overrides, error) {
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("\ufeff"))))
	r.FieldsPerRecord, r.TrimLeadingSpace = -1, true
	var all Overrides
	for first := true; ; first = false {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrOverrides, err)
		}
		line, _ := r.FieldPos(0)
		if first {
			if len(row) != 3 || !strings.EqualFold(row[0], "student") || !strings.EqualFold(row[1], "points") || !strings.EqualFold(row[2], "comment") {
				return nil, fmt.Errorf("%w: the first line has to be student,points,comment, not %q", ErrOverrides, strings.Join(row, ","))
			}
			continue
		}
		o, err := parseOverride(row, line)
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(all, func(p Override) bool { return p.names(o.Student) || o.names(p.Student) }); i >= 0 {
			return nil, fmt.Errorf("%w: line %d: %s stands in line %d already", ErrOverrides, line, terminal.VisibleName(o.Student), all[i].line)
		}
		all = append(all, o)
	}
}

func parseOverride(row []string, line int) (Override, error) {
	if len(row) != 3 {
		return Override{}, fmt.Errorf("%w: line %d has %d fields, not student, points and comment: a comment with a comma in it has to be in quotation marks", ErrOverrides, line, len(row))
	}
	o := Override{Student: row[0], Comment: strings.TrimSpace(row[2]), line: line}
	points := strings.TrimSpace(row[1])
	switch {
	case o.Student == "":
		return o, fmt.Errorf("%w: line %d names no student", ErrOverrides, line)
	case points == "" && o.Comment == "":
		return o, fmt.Errorf("%w: line %d has neither points nor a comment", ErrOverrides, line)
	case points == "":
		return o, nil
	}
	n, err := strconv.ParseFloat(points, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) || n < 0 {
		return o, fmt.Errorf("%w: line %d: the points of %s are %q, not a number from 0 up, such as 87.5", ErrOverrides, line, terminal.VisibleName(o.Student), points)
	}
	o.Points = &n
	return o, nil
}

// Apply sets the Override of each result. It returns the overrides whose student is not among the results.
func (list Overrides) Apply(results []Result) (unknown Overrides, err error) {
	for i := range list {
		o := &list[i]
		n := slices.IndexFunc(results, func(r Result) bool { return o.names(r.Name) })
		if n < 0 {
			unknown = append(unknown, *o)
			continue
		}
		if r := results[n].Report; o.Points != nil && r != nil && *o.Points > r.MaxScore {
			return nil, fmt.Errorf("%s: %w: line %d: %s gets %v points, which is more than the %v there are", OverridesFile, ErrOverrides, o.line,
				terminal.VisibleName(o.Student), *o.Points, r.MaxScore)
		}
		results[n].Override = o
	}
	return unknown, nil
}

// Unknown returns an error about the first override in the list, or nil if the list is empty. It is called with the
// overrides that Apply has returned because there is no such student.
func (list Overrides) Unknown() error {
	if len(list) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w: line %d: there is no student %s in this class: correct the name, or remove the line", OverridesFile, ErrOverrides, list[0].line,
		terminal.VisibleName(list[0].Student))
}

// names reports whether the override is for a student. Staff may type the student's name, or copy it from grades.csv,
// where it may look different: it has the form that the function named text returns. A typed ü is one character, but
// archives from a Mac write ü in file names as u and a combining mark.
func (o *Override) names(student string) bool {
	name := norm.NFC.String(o.Student)
	return name == norm.NFC.String(student) || name == norm.NFC.String(text(student))
}

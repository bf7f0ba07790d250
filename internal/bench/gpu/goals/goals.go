// Package goals compares measured rates with the rates of other libraries, and checks whether they reach the
// required ratio.
package goals

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// A Rival is how long another library takes for a case.
type Rival struct {
	Way     string // the library or its kernel
	Seconds float64
}

// ReadRivals reads lines of the form NAME, tab, WAY, tab, SECONDS, and returns the rivals by the name of the case.
// It prints all other lines, which are comments after # or output of other programs. If file is "", there are no
// rivals.
func ReadRivals(file string) (map[string][]Rival, error) {
	rivals := map[string][]Rival{}
	if file == "" {
		return rivals, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n")
		fields := strings.Split(line, "\t")
		if strings.HasPrefix(line, "#") || len(fields) != 3 {
			fmt.Println("#", strings.TrimPrefix(line, "# "))
			continue
		}
		seconds, err := strconv.ParseFloat(fields[2], 64)
		if err != nil || !(seconds > 0) {
			fmt.Printf("# %s: the seconds must be a number above 0\n", line)
			continue
		}
		rivals[fields[0]] = append(rivals[fields[0]], Rival{fields[1], seconds})
	}
	return rivals, nil
}

// A Tally counts goals.
type Tally struct{ goals, reached, unmeasured int }

// Judge counts a goal. The parameter goal is a text that describes the goal. Judge returns this text, followed by a
// verdict: yes if ratio is at least minimum, and NO if it is not. If ratio is 0, it was not measured, and the verdict
// is "not compared".
func (t *Tally) Judge(goal string, minimum, ratio float64) string {
	t.goals++
	switch {
	case ratio == 0:
		t.unmeasured++
		return goal + ": not compared"
	case ratio < minimum:
		return goal + ": NO"
	}
	t.reached++
	return goal + ": yes"
}

func (t *Tally) String() string {
	return fmt.Sprintf("%d of %d required ratios hold, %d could not be compared", t.reached, t.goals, t.unmeasured)
}

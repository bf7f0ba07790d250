package directed

import (
	"embed"
	"fmt"
	"strings"

	"llmmemory/internal/course/trace"
)

// A Case is one named trace.
type Case struct {
	Task     int // of the handout, 1 to 5
	Name     string
	Sentence string // of the handout
	Advice   bool   // the handout does not ask for it: no points
	Ops      []trace.Op
}

//go:embed task*.trace
var files embed.FS

// Cases returns every case, in the order of the handout.
func Cases() ([]Case, error) {
	var all []Case
	for task := 1; task <= 5; task++ {
		file := fmt.Sprintf("task%d.trace", task)
		text, err := files.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, section := range strings.Split("\n"+string(text), "\n== ")[1:] {
			title, body, _ := strings.Cut(section, "\n")
			name, sentence, _ := strings.Cut(title, "  ")
			ops, err := trace.Parse(body)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", file, name, err)
			}
			all = append(all, Case{task, name, sentence, strings.HasPrefix(name, "advice_"), ops})
		}
	}
	return all, nil
}

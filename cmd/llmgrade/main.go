// Command llmgrade grades submissions of the homework: a file, or a folder with
// one file or one folder per student.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"llmmemory/internal/grade"
	"llmmemory/internal/grade/sandbox"
)

// Exit statuses.
const (
	fullMarks = iota
	less
	trouble
)

func main() {
	sandbox.Launch()
	status := fullMarks
	if err := command(&status).Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "llmgrade:", err)
		status = trouble
	}
	os.Exit(status)
}

func command(status *int) *cobra.Command {
	var asJSON bool
	var seed uint64
	c := &cobra.Command{
		Use:   "llmgrade FILE|DIR...",
		Short: "Grade llm_memory.c",
		Long: "llmgrade compiles each llm_memory.c with the flags of the course, runs it apart from itself,\n" +
			"and compares everything it does with what the handout asks for.\n\n" +
			"The exit status is 0 for full marks, 1 for less, 2 if something could not be graded.",
		Example:       "  llmgrade llm_memory.c\n  llmgrade --json class/ >class.jsonl",
		Args:          cobra.MinimumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, args []string) error {
			files, err := submissions(args)
			if err != nil {
				return err
			}
			g, err := grade.NewGrader()
			if err != nil {
				return err
			}
			defer g.Close()
			g.Seed = seed
			var failed error
			for _, file := range files {
				r, err := g.File(file)
				if err != nil { // one that cannot be graded does not stop the others
					failed = errors.Join(failed, fmt.Errorf("%s: %w", file, err))
					continue
				}
				if r.Score < r.MaxScore {
					*status = less
				}
				if asJSON {
					err = writeJSON(c.OutOrStdout(), r)
				} else {
					err = writeText(c.OutOrStdout(), r)
				}
				if err != nil {
					return err
				}
			}
			return failed
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "one line of JSON per submission")
	c.Flags().Uint64Var(&seed, "seed", 0, "of the random traces (default: from the submission's text)")
	return c
}

// submissions lists the files to grade: a file itself, of a folder each .c file
// and each folder's llm_memory.c.
func submissions(args []string) ([]string, error) {
	var files []string
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, arg)
			continue
		}
		entries, err := os.ReadDir(arg)
		if err != nil {
			return nil, err
		}
		before := len(files)
		for _, e := range entries {
			if path := submissionIn(arg, e); path != "" {
				files = append(files, path)
			}
		}
		if len(files) == before {
			return nil, fmt.Errorf("%s: neither a .c file nor a folder with llm_memory.c in it", arg)
		}
	}
	return files, nil
}

func submissionIn(dir string, e fs.DirEntry) string {
	path := filepath.Join(dir, e.Name())
	switch {
	case e.IsDir():
		path = filepath.Join(path, "llm_memory.c")
		if _, err := os.Stat(path); err != nil {
			return ""
		}
	case !strings.HasSuffix(path, ".c"):
		return ""
	}
	return path
}

func writeJSON(w io.Writer, r *grade.Report) error {
	return json.NewEncoder(w).Encode(struct {
		File     string   `json:"file"`
		Score    float64  `json:"score"`
		MaxScore float64  `json:"max_score"`
		Failed   []string `json:"failed"`
		Seconds  float64  `json:"seconds"`
	}{r.File, r.Score, r.MaxScore, r.Failed(), r.Time.Seconds()})
}

// writeText prints what a student reads: the score, and of each finding the
// sentence, the first difference, and the steps up to it.
func writeText(w io.Writer, r *grade.Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %.1f of %.0f points\n", r.File, r.Score, r.MaxScore)
	if r.Rejected != nil {
		fmt.Fprintf(&b, "  %s\n", strings.ReplaceAll(r.Rejected.Error(), "\n", "\n  "))
	}
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "\n%s\n", f.Name)
		if f.Sentence != "" {
			fmt.Fprintf(&b, "  handout:  %s\n", f.Sentence)
		}
		fmt.Fprintf(&b, "  %s\n  expected: %s\n  actual:   %s\n  after:\n", f.Field, f.Expected, f.Actual)
		const most = 12
		from := max(0, f.Step+1-most)
		if from > 0 {
			fmt.Fprintf(&b, "    (%d steps)\n", from)
		}
		for _, op := range f.Ops[from : f.Step+1] {
			fmt.Fprintf(&b, "    %s\n", op)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

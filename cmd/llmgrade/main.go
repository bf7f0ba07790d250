// Command llmgrade grades submissions of the homework: a file, or a folder with
// one file or one folder per student.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"llmmemory/internal/grade"
	"llmmemory/internal/grade/reproduce"
	"llmmemory/internal/grade/sandbox"
	"llmmemory/internal/grade/trace"
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

// options are the flags.
type options struct {
	json   bool
	seed   uint64
	jobs   int
	only   string
	replay string
	trace  string
	main   string
}

func command(status *int) *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "llmgrade FILE|DIR...",
		Short: "Grade llm_memory.c",
		Long: "llmgrade compiles each llm_memory.c with the flags of the course, runs it apart from itself,\n" +
			"and compares everything it does with what the handout asks for.\n\n" +
			"The exit status is 0 for full marks, 1 for less, 2 if something could not be graded.",
		Example: "  llmgrade llm_memory.c\n" +
			"  llmgrade --only task4 llm_memory.c\n" +
			"  llmgrade --trace first.trace llm_memory.c   # what the first finding needs\n" +
			"  llmgrade --replay first.trace llm_memory.c  # and nothing else\n" +
			"  llmgrade --main first.c llm_memory.c        # the same in C, for a debugger\n" +
			"  llmgrade --json class/ >class.jsonl",
		Args:          cobra.MinimumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(c *cobra.Command, args []string) error { return o.run(c.OutOrStdout(), args, status) },
	}
	f := c.Flags()
	f.BoolVar(&o.json, "json", false, "one line of JSON per submission")
	f.Uint64Var(&o.seed, "seed", 0, "of the random traces (default: from the submission's text)")
	f.IntVar(&o.jobs, "jobs", runtime.NumCPU(), "submissions at a time")
	f.StringVar(&o.only, "only", "", "play only the traces whose name has this in it")
	f.StringVar(&o.replay, "replay", "", "play this trace and nothing else")
	f.StringVar(&o.trace, "trace", "", "write the trace of the first finding to this file")
	f.StringVar(&o.main, "main", "", "write a C program that shows the first finding to this file")
	c.MarkFlagsMutuallyExclusive("only", "replay")
	addGradescope(c)
	return c
}

func (o *options) run(w io.Writer, args []string, status *int) error {
	files, err := submissions(args)
	if err != nil {
		return err
	}
	if (o.trace != "" || o.main != "") && len(files) > 1 {
		return errors.New("--trace and --main are for one submission")
	}
	g, err := grade.NewGrader()
	if err != nil {
		return err
	}
	defer g.Close()
	g.Seed, g.Only = o.seed, o.only
	grader := g.File
	if o.replay != "" {
		text, err := os.ReadFile(o.replay)
		if err != nil {
			return err
		}
		ops, err := trace.Parse(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", o.replay, err)
		}
		grader = func(path string) (*grade.Report, error) { return g.Replay(path, ops) }
	}
	var failed error
	for r := range inOrder(files, max(1, o.jobs), grader) {
		if r.err != nil { // one that cannot be graded does not stop the others
			failed = errors.Join(failed, fmt.Errorf("%s: %w", r.file, r.err))
			continue
		}
		if r.Score < r.MaxScore {
			*status = less
		}
		if err := o.write(w, r.Report); err != nil {
			return err
		}
	}
	return failed
}

// A graded is what became of one file.
type graded struct {
	*grade.Report
	file string
	err  error
}

// inOrder grades so many files at a time and yields them in their order.
func inOrder(files []string, jobs int, grader func(string) (*grade.Report, error)) iter.Seq[graded] {
	done := make([]chan graded, len(files))
	for i := range done {
		done[i] = make(chan graded, 1)
	}
	var next atomic.Int64
	for range min(jobs, len(files)) {
		go func() {
			for i := next.Add(1) - 1; i < int64(len(files)); i = next.Add(1) - 1 {
				r, err := grader(files[i])
				done[i] <- graded{r, files[i], err}
			}
		}()
	}
	return func(yield func(graded) bool) {
		for _, c := range done {
			if !yield(<-c) {
				return
			}
		}
	}
}

func (o *options) write(w io.Writer, r *grade.Report) error {
	if o.trace != "" || o.main != "" {
		if len(r.Findings) == 0 || len(r.Findings[0].Ops) == 0 {
			return fmt.Errorf("%s shows no difference in a trace: there is nothing to write", r.File)
		}
		f := r.Findings[0]
		for file, text := range map[string]string{o.trace: steps(f), o.main: reproduce.Program(f.Name, f.Ops, f.Difference)} {
			if file == "" {
				continue
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	if o.json {
		return writeJSON(w, r)
	}
	return writeText(w, r)
}

// steps is a trace up to its finding, to be replayed.
func steps(f grade.Finding) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s: %s is %s, expected %s\n", f.Name, f.Field, f.Actual, f.Expected)
	for _, op := range f.Ops[:f.Step+1] {
		fmt.Fprintln(&b, op)
	}
	return b.String()
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
		fmt.Fprintf(&b, "  %s\n", strings.ReplaceAll(r.Rejected.Text, "\n", "\n  "))
	}
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "\n%s\n", f.Name)
		if f.Sentence != "" {
			fmt.Fprintf(&b, "  handout:  %s\n", f.Sentence)
		}
		fmt.Fprintf(&b, "  %s\n  expected: %s\n  actual:   %s\n", f.Field, f.Expected, f.Actual)
		for _, line := range f.Lines {
			fmt.Fprintf(&b, "  %s\n", line)
		}
		if len(f.Same) > 0 {
			fmt.Fprintf(&b, "  the same in: %s\n", strings.Join(f.Same, ", "))
		}
		if len(f.Ops) == 0 {
			continue
		}
		b.WriteString("  after:\n")
		const most = 12
		from := max(0, f.Step+1-most)
		if from > 0 {
			fmt.Fprintf(&b, "    (%d steps)\n", from)
		}
		for _, op := range f.Ops[from : f.Step+1] {
			fmt.Fprintf(&b, "    %s\n", op)
		}
	}
	for _, a := range r.Advice {
		fmt.Fprintf(&b, "\nadvice, which costs nothing: %s\n  handout:  %s\n  %s\n", a.Name, a.Sentence, a.Text)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "\nnote: %s\n", note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

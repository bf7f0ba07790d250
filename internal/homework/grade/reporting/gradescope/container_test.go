package gradescope

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// contract is results.json in Gradescope's specification.
type contract struct {
	Score            *float64       `json:"score"`
	ExecutionTime    *float64       `json:"execution_time"`
	Output           string         `json:"output"`
	OutputFormat     string         `json:"output_format"`
	Visibility       string         `json:"visibility"`
	StdoutVisibility string         `json:"stdout_visibility"`
	ExtraData        map[string]any `json:"extra_data"`
	Tests            []struct {
		Score        *float64 `json:"score"`
		MaxScore     *float64 `json:"max_score"`
		Status       string   `json:"status"`
		Name         string   `json:"name"`
		Number       string   `json:"number"`
		Output       string   `json:"output"`
		OutputFormat string   `json:"output_format"`
		Visibility   string   `json:"visibility"`
	} `json:"tests"`
}

var (
	visibilities = []string{"", "hidden", "after_due_date", "after_published", "visible"}
	formats      = []string{"", "text", "html", "simple_format", "md", "ansi"}
)

// read reads results.json and checks it against Gradescope's documentation. If the results have tests, their MaxScore
// must sum up to points.
func read(t *testing.T, dir string, points float64) Results {
	t.Helper()
	file := filepath.Join(dir, "results", "results.json")
	info, err := os.Lstat(file)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o644), info.Mode())
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var c contract
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&c), "%s", text)
	require.False(t, d.More(), "one value")
	require.NotNil(t, c.Score)
	require.Contains(t, visibilities, c.Visibility)
	require.Equal(t, "hidden", c.StdoutVisibility)
	require.Equal(t, "text", c.OutputFormat, "the default renders HTML")
	sum, maximum := 0.0, 0.0
	for _, test := range c.Tests {
		require.NotEmpty(t, test.Name)
		require.Contains(t, visibilities, test.Visibility)
		require.Contains(t, formats, test.OutputFormat)
		require.Contains(t, []string{"", "passed", "failed"}, test.Status)
		require.NotNil(t, test.MaxScore)
		maximum += *test.MaxScore
		if test.Score != nil {
			require.GreaterOrEqual(t, *test.Score, 0.0)
			require.LessOrEqual(t, *test.Score, *test.MaxScore)
			sum += *test.Score
		} else {
			require.Empty(t, test.Status)
		}
		if test.Status == "failed" {
			require.Zero(t, *test.Score)
		}
		require.NotContains(t, strings.ToLower(test.Output), "all passed")
		require.NotContains(t, test.Output, "\r")
	}
	require.NotContains(t, strings.ToLower(c.Output), "all passed")
	require.NotContains(t, c.Output, fmt.Sprint(*c.Score, " "), "no sum while tests are hidden")
	if len(c.Tests) > 0 && points > 0 {
		require.InDelta(t, sum, *c.Score, 1e-9)
		require.InDelta(t, points, maximum, 1e-9)
	}
	left, err := filepath.Glob(filepath.Join(dir, "results", ".new-*"))
	require.NoError(t, err)
	require.Empty(t, left)
	var r Results
	require.NoError(t, json.Unmarshal(text, &r))
	return r
}

func container(t *testing.T, p Package, files map[string]string) string {
	t.Helper()
	level.SkipQuick(t)
	dir := t.TempDir()
	for _, folder := range []string{"source", "submission", "results"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, folder), 0o755))
	}
	for _, f := range packed(t, p).File {
		text, err := f.Open()
		require.NoError(t, err)
		content, err := io.ReadAll(text)
		require.NoError(t, err)
		if f.Name == "llmgrade" {
			self, err := os.Executable()
			require.NoError(t, err)
			content = []byte("#!/bin/sh\nexec '" + self + "' \"$@\"\n")
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "source", f.Name), content, f.Mode()))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run_autograder"), runAutograder, 0o755))
	require.NoError(t, os.Chmod(filepath.Join(dir, "results"), 0o777)) // whatever it was
	lay(t, filepath.Join(dir, "submission"), files)
	return dir
}

func packed(t *testing.T, p Package) *zip.Reader {
	t.Helper()
	p.Binary = static()
	var b bytes.Buffer
	require.NoError(t, p.Write(&b))
	z, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	require.NoError(t, err)
	return z
}

func grading(t *testing.T, dir string) (log string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(dir, "run_autograder"))
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

package gradescope

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// contract is results.json in Gradescope's specification.
type contract struct {
	Score            *float64        `json:"score"`
	ExecutionTime    *float64        `json:"execution_time"`
	Output           string          `json:"output"`
	OutputFormat     string          `json:"output_format"`
	TestOutputFormat string          `json:"test_output_format"`
	TestNameFormat   string          `json:"test_name_format"`
	Visibility       string          `json:"visibility"`
	StdoutVisibility string          `json:"stdout_visibility"`
	ExtraData        json.RawMessage `json:"extra_data"`
	Tests            []struct {
		Score        *float64        `json:"score"`
		MaxScore     *float64        `json:"max_score"`
		Status       string          `json:"status"`
		Name         string          `json:"name"`
		NameFormat   string          `json:"name_format"`
		Number       string          `json:"number"`
		Output       string          `json:"output"`
		OutputFormat string          `json:"output_format"`
		Tags         []string        `json:"tags"`
		Visibility   string          `json:"visibility"`
		ExtraData    json.RawMessage `json:"extra_data"`
	} `json:"tests"`
	Leaderboard []struct {
		Name  string          `json:"name"`
		Value json.RawMessage `json:"value"`
		Order string          `json:"order"`
	} `json:"leaderboard"`
}

var (
	visibilities = []string{"", "hidden", "after_due_date", "after_published", "visible"}
	formats      = []string{"", "text", "html", "simple_format", "md", "ansi"}
)

// read reads results.json and checks it against the contract. Its tests, if there are any, are
// worth the given points.
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
	sum, most := 0.0, 0.0
	for _, test := range c.Tests {
		require.NotEmpty(t, test.Name)
		require.Contains(t, visibilities, test.Visibility)
		require.Contains(t, formats, test.OutputFormat)
		require.Contains(t, []string{"", "passed", "failed"}, test.Status)
		require.NotNil(t, test.MaxScore)
		most += *test.MaxScore
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
		require.InDelta(t, points, most, 1e-9)
	}
	left, err := filepath.Glob(filepath.Join(dir, "results", ".new-*"))
	require.NoError(t, err)
	require.Empty(t, left)
	var r Results
	require.NoError(t, json.Unmarshal(text, &r))
	return r
}

// container returns a folder with the layout of /autograder, from the zip.
func container(t *testing.T, p Package, files map[string]string) string {
	t.Helper()
	z := unpacked(t, p)
	dir := t.TempDir()
	for _, folder := range []string{"source", "submission", "results"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, folder), 0o755))
	}
	for name, f := range z {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "source", name), f.text, f.mode))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run_autograder"), runAutograder, 0o755))
	require.NoError(t, os.Chmod(filepath.Join(dir, "results"), 0o777)) // whatever it was
	lay(t, filepath.Join(dir, "submission"), files)
	return dir
}

type packed struct {
	text []byte
	mode fs.FileMode
}

var (
	packing  sync.Mutex
	packages = map[string]map[string]packed{} // by what staff choose
)

// unpacked returns the content of the zip, which is packed once for equal packages.
func unpacked(t *testing.T, p Package) map[string]packed {
	t.Helper()
	packing.Lock()
	defer packing.Unlock()
	choice := fmt.Sprintf("%s %s", p.Limit, p.Points)
	if packages[choice] != nil {
		return packages[choice]
	}
	var err error
	p.Binary, err = os.ReadFile(static(t))
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, p.Write(&b))
	z, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	require.NoError(t, err)
	all := map[string]packed{}
	for _, f := range z.File {
		text, err := fs.ReadFile(z, f.Name)
		require.NoError(t, err)
		all[f.Name] = packed{text, f.Mode()}
	}
	packages[choice] = all
	return all
}

// grading runs run_autograder as Gradescope does. It has to succeed.
func grading(t *testing.T, dir string) (log string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(dir, "run_autograder"))
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

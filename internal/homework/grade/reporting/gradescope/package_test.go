package gradescope

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/testkit/level"
)

func TestThePackageHoldsWhatTheAutograderNeeds(t *testing.T) {
	level.SkipQuick(t)
	p := Package{Binary: static(), Limit: "10/24h"}
	var first, second bytes.Buffer
	require.NoError(t, p.Write(&first))
	require.NoError(t, p.Write(&second))
	require.Equal(t, first.Bytes(), second.Bytes())

	modes := map[string]fs.FileMode{}
	z := packed(t, p)
	require.True(t, slices.IsSortedFunc(z.File, func(a, b *zip.File) int { return strings.Compare(a.Name, b.Name) }))
	for _, f := range z.File {
		require.Equal(t, 2020, f.Modified.Year(), "no clock is in it")
		modes[f.Name] = f.Mode()
		text, err := fs.ReadFile(z, f.Name)
		require.NoError(t, err)
		switch f.Name {
		case "setup.sh", "run_autograder":
			require.Regexp(t, `^#!/bin/sh\n`, string(text))
		case "points.json":
			points, err := grade.ParsePoints(text)
			require.NoError(t, err)
			require.Equal(t, grade.DefaultPoints, points)
		case "config.json":
			l, err := parseConfig(text)
			require.NoError(t, err)
			require.Equal(t, 10, l.Count)
		case "llmgrade":
			require.Equal(t, p.Binary, text)
		}
	}
	require.Equal(t, map[string]fs.FileMode{
		"README.txt": 0o644, "config.json": 0o644, "points.json": 0o644,
		"llmgrade": 0o755, "run_autograder": 0o755, "setup.sh": 0o755,
	}, modes)

	staff := []byte(`{"tasks": [10, 20, 30, 20, 20],  "directed": 100, "hidden": 0, "memory": 0}`)
	z = packed(t, Package{Points: staff})
	text, err := fs.ReadFile(z, "points.json")
	require.NoError(t, err)
	require.Equal(t, staff, text, "as it is")
	_, err = fs.Stat(z, "config.json")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorIs(t, Package{Binary: static(), Points: []byte(`{"tasks": [10]}`)}.Write(io.Discard), grade.ErrPoints)
	require.ErrorIs(t, Package{Binary: static(), Limit: "often"}.Write(io.Discard), ErrLimit)
}

func TestOnlyABinaryThatRunsThereIsPacked(t *testing.T) {
	level.SkipQuick(t)
	good := static()
	other := bytes.Clone(good)
	binary.LittleEndian.PutUint16(other[18:], 8) // e_machine: MIPS
	object := bytes.Clone(good)
	binary.LittleEndian.PutUint16(object[16:], 1) // e_type: relocatable
	sh, err := os.ReadFile("/bin/sh")
	require.NoError(t, err)
	for says, text := range map[string][]byte{
		"linked with shared libraries": sh,
		"it is for EM_MIPS":            other,
		"it is no program":             object,
		"it is no Linux program":       []byte("MZ"),
	} {
		err := Package{Binary: text}.Write(io.Discard)
		require.ErrorIs(t, err, ErrBinary)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, "make llmgrade")
	}
}

func TestSetupFailsLoudly(t *testing.T) {
	dir := t.TempDir()
	lay(t, filepath.Join(dir, "source"), map[string]string{"setup.sh": string(setup), "run_autograder": "", "llmgrade": "#!/bin/sh\n"})
	lay(t, dir, map[string]string{"bin/apt-get": "#!/bin/sh\necho \"apt-get $*\"\n[ \"$1\" != install ]\n"})
	require.NoError(t, os.Chmod(filepath.Join(dir, "bin/apt-get"), 0o755))
	cmd := exec.Command("sh", filepath.Join(dir, "source/setup.sh"))
	cmd.Env = []string{"PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "apt-get install -y --no-install-recommends gcc libc6-dev valgrind libc6-dbg\n")
	require.NotContains(t, string(out), "is set up")
}

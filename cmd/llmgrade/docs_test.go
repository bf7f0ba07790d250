package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/reporting/class"
)

func blocks(t *testing.T, document string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	block := ""
	for line := range strings.Lines(string(text) + "\n") {
		if code, indented := strings.CutPrefix(line, "    "); indented {
			block += code
			continue
		}
		if block != "" {
			all = append(all, block)
		}
		block = ""
	}
	return all
}

// Ensure that the examples in STUDENTS.md are what llmgrade prints for a submission with one mistake. The submission
// copies a shared block only up to the last record in use.
func TestTheExamplesForStudentsAreWhatIsPrinted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := put(t, dir, "llm_memory.c", "pool + (size_t)id * BLOCK_SIZE, BLOCK_SIZE);", "pool + (size_t)id * BLOCK_SIZE, (size_t)(offset + 1) * sizeof(int));")
	status, out, said := run(t, file)
	require.Equal(t, 1, status, said)
	var printed []string
	for line := range strings.Lines(strings.ReplaceAll(out, dir+string(filepath.Separator), "")) {
		printed = append(printed, strings.TrimRight(line, " \n"))
	}
	examples := 0
	for _, block := range blocks(t, "STUDENTS.md") {
		if !strings.Contains(block, "task 1") && !strings.Contains(block, "handout:  ") {
			continue
		}
		examples++
		offset := 0
		for line := range strings.Lines(block) {
			if line = strings.TrimRight(line, "\n"); line == "..." {
				continue
			}
			next := slices.Index(printed[offset:], line)
			require.GreaterOrEqual(t, next, 0, "%q is not printed, or not at this place:\n%s", line, out)
			offset += next + 1
		}
	}
	require.Equal(t, 2, examples)
}

func TestTheStepsForStudentsAreRead(t *testing.T) {
	text, err := os.ReadFile("STUDENTS.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "| step | call |\n|---|---|\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	steps := 0
	for row := range strings.Lines(table) {
		for _, step := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
			_, err := trace.Parse(strings.Replace(step[1], "…", "append e0 1 1", 1) + "\n")
			require.NoError(t, err, row)
			steps++
		}
	}
	require.Greater(t, steps, 15)
}

var flagOf = regexp.MustCompile(`(?:^|\s)(--[a-z-]+)`)

func TestTheCommandsOfTheDocumentsExist(t *testing.T) {
	help := map[string]string{}
	for _, name := range []string{"", "gate", "gradescope", "merge", "points", "student"} {
		status, out, said := run(t, strings.Fields(name+" --help")...)
		require.Zero(t, status, said)
		help[name] = out
	}
	commands := 0
	for _, document := range []string{"README.md", "STUDENTS.md"} {
		for _, block := range blocks(t, document) {
			for line := range strings.Lines(block) {
				fields := strings.Fields(line)
				if len(fields) < 2 || filepath.Base(fields[0]) != "llmgrade" || strings.HasSuffix(fields[0], ":") {
					continue
				}
				name := fields[1]
				if _, found := help[name]; !found {
					name = ""
				}
				commands++
				for _, flag := range flagOf.FindAllStringSubmatch(line, -1) {
					require.Contains(t, help[name], flag[1]+" ", line)
				}
			}
		}
	}
	require.Greater(t, commands, 12)
}

func TestTheTablesOfTheReadmeAreWhatIsWritten(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var head strings.Builder
	require.NoError(t, class.WriteCSV(&head, nil))
	_, table, found := strings.Cut(string(text), "The columns of `grades.csv`:\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "**What staff decide**")
	for column := range strings.SplitSeq(strings.TrimSpace(head.String()), ",") {
		if !strings.HasPrefix(column, "task") {
			require.Contains(t, table, "`"+column+"`")
		}
	}
	for _, block := range blocks(t, "README.md") {
		if strings.HasPrefix(block, "student,points,comment") {
			folder := class.Folder{Path: t.TempDir()}
			require.NoError(t, os.WriteFile(filepath.Join(folder.Path, class.OverridesFile), []byte(block), 0o644))
			overrides, err := folder.Overrides()
			require.NoError(t, err)
			require.Len(t, overrides, 2)
			return
		}
	}
	require.Fail(t, "the README has no example of "+class.OverridesFile)
}

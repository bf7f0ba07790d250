package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"llmmemory/internal/grade"
	"llmmemory/internal/grade/class"
	"llmmemory/internal/grade/report"
	"llmmemory/internal/terminal"
)

// similarPage is the name of the page in the folder of a class.
const similarPage = "similar.html"

func similarCommand() *cobra.Command {
	var html, starter string
	threshold := int(100 * class.Threshold)
	c := &cobra.Command{
		Use:   "similar --html OUT FILE|DIR...",
		Short: "Find submissions that share code",
		Long: "similar compares all pairs of submissions and writes a page with those that share code, side by\n" +
			"side. Names, comments, layout and the order of functions do not matter. The page shows which\n" +
			"pairs to read. It proves nothing, and has no effect on points.",
		Example: "  llmgrade similar --html grades class/\n  llmgrade similar --html grades --starter handout/ class/",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if threshold < 1 || threshold > 100 {
				return fmt.Errorf("--threshold is %d: it has to be a percentage from 1 to 100", threshold)
			}
			return writeSimilar(c.OutOrStdout(), html, starter, args, float64(threshold)/100)
		},
	}
	c.Flags().StringVar(&html, "html", "", "write "+similarPage+" to this `FOLDER`")
	c.Flags().StringVar(&starter, "starter", "", "leave out code that is in this `FILE`, or in the .c and .h files of this folder")
	c.Flags().IntVar(&threshold, "threshold", threshold, "list pairs that share at least this `PERCENT` of the smaller file's code")
	_ = c.MarkFlagRequired("html")
	return c
}

func writeSimilar(w io.Writer, html, starter string, paths []string, threshold float64) error {
	all, err := class.Find(paths)
	if err != nil {
		return err
	}
	var files []class.Source
	var unread []string
	for _, s := range all {
		text, err := grade.ReadSource(s.File)
		if s.Why != "" || err != nil {
			unread = append(unread, s.Name)
			continue
		}
		files = append(files, class.Source{Name: s.Name, Text: text})
	}
	given, err := starterFiles(starter)
	if err != nil {
		return fmt.Errorf("--starter: %w", err)
	}
	folder, err := class.NewFolder(html)
	if err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	found := report.Similarity{Files: files, Threshold: threshold}
	found.Pairs, found.Unread = class.Similar(files, given, threshold)
	found.Unread = append(unread, found.Unread...)
	p := &pages{Folder: folder}
	if err := p.put(similarPage, found.Write); err != nil {
		return err
	}
	for _, pair := range found.Pairs {
		fmt.Fprintf(w, "%3.0f %%  %s  %s\n", 100*pair.Share, terminal.VisibleName(pair.A), terminal.VisibleName(pair.B))
	}
	word := "pairs"
	if len(found.Pairs) == 1 {
		word = "pair"
	}
	_, err = fmt.Fprintf(w, "%d %s of %d submissions: %s\n", len(found.Pairs), word, len(files), terminal.Visible(filepath.Join(html, similarPage)))
	return err
}

// starterFiles returns the code that all students were given.
func starterFiles(path string) ([]class.Source, error) {
	var all []class.Source
	if path == "" {
		return nil, nil
	}
	err := filepath.WalkDir(path, func(file string, d fs.DirEntry, err error) error {
		isC := strings.HasSuffix(file, ".c") || strings.HasSuffix(file, ".h")
		if err != nil || !d.Type().IsRegular() || !isC && file != path {
			return err
		}
		text, err := os.ReadFile(file)
		all = append(all, class.Source{Name: file, Text: text})
		return err
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s has no .c or .h file in it", path)
	}
	return all, err
}

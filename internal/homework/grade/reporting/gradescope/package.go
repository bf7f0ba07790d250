package gradescope

import (
	"archive/zip"
	"bytes"
	"cmp"
	"debug/elf"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"time"

	"llmmemory/internal/homework/grade"
)

//go:embed setup.sh
var setup []byte

//go:embed run_autograder
var runAutograder []byte

//go:embed README.txt
var readme []byte

// A Package is the content of the zip.
type Package struct {
	Binary []byte // llmgrade itself
	Points []byte // points.json as staff wrote it; empty: grade.DefaultPoints
	Limit  string // text for parseLimit; empty: no limit
}

// ErrBinary means that the binary cannot run in the container.
var ErrBinary = errors.New("llmgrade cannot go into the package as it was built; `make llmgrade` makes build/llmgrade, which can")

// Write writes the zip: the same bytes for the same package.
func (p Package) Write(w io.Writer) error {
	if err := standsAlone(p.Binary); err != nil {
		return err
	}
	points, err := p.points()
	if err != nil {
		return err
	}
	type file struct {
		name string
		mode fs.FileMode
		text []byte
	}
	files := []file{
		{"README.txt", 0o644, readme},
		{"llmgrade", 0o755, p.Binary},
		{"points.json", 0o644, points},
		{"run_autograder", 0o755, runAutograder},
		{"setup.sh", 0o755, setup},
	}
	if p.Limit != "" {
		config, err := p.config()
		if err != nil {
			return err
		}
		files = append(files, file{"config.json", 0o644, config})
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	z := zip.NewWriter(w)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)}
		h.SetMode(f.mode)
		entry, err := z.CreateHeader(h)
		if err == nil {
			_, err = entry.Write(f.text)
		}
		if err != nil {
			return fmt.Errorf("package %s: %w", f.name, err)
		}
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("package: %w", err)
	}
	return nil
}

func (p Package) points() ([]byte, error) {
	if len(p.Points) == 0 {
		text, err := json.MarshalIndent(grade.DefaultPoints, "", "  ")
		return append(text, '\n'), err
	}
	_, err := grade.ParsePoints(p.Points)
	return p.Points, err
}

func (p Package) config() ([]byte, error) {
	if _, err := parseLimit(p.Limit); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(Config{RateLimit: p.Limit}, "", "  ")
	return append(text, '\n'), err
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// standsAlone returns an error unless a binary is a program for Linux and this machine's architecture, and needs no
// shared libraries.
func standsAlone(binary []byte) error {
	f, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		return fmt.Errorf("%w (it is no Linux program: %v)", ErrBinary, err)
	}
	if f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return fmt.Errorf("%w (it is no program)", ErrBinary)
	}
	if f.Machine != machines[runtime.GOARCH] {
		return fmt.Errorf("%w (it is for %v, not %s)", ErrBinary, f.Machine, runtime.GOARCH)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%w (it is linked with shared libraries)", ErrBinary)
		}
	}
	return nil
}

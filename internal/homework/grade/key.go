package grade

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"llmmemory/internal/homework/grade/isolation/build"
)

// Key returns a hash of everything that a report depends on: the file's text, this program, its settings, and its
// tools.
func (g *Grader) Key(path string) (string, error) {
	h := sha256.New()
	settings, err := json.Marshal(struct {
		Seed      uint64
		Only      string
		Points    Points
		AllStages bool
		Traces    int
		Setting   Setting
		Gate      build.Gate
	}{g.Seed, g.Only, g.Points, g.AllStages, g.Traces, g.setting, g.kit.Gate})
	if err != nil {
		return "", err
	}
	h.Write(settings)
	self, err := g.self()
	if err != nil {
		return "", err
	}
	h.Write(self)
	source, err := ReadSource(path)
	if err != nil && !errors.Is(err, errNoSource) {
		return "", err
	}
	fmt.Fprintf(h, "%v\n%v\n", err, otherHeader(path))
	h.Write(source)
	return hex.EncodeToString(h.Sum(nil)), nil
}

package class

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/jobs"
)

// A Folder keeps the reports of a class between runs.
type Folder struct{ Path string }

// stored is the content of a file in reports/.
type stored struct {
	Name    string // encoded, because a name need not be UTF-8
	File    string
	Key     string        // key of everything that the report depends on
	Report  *grade.Report `json:",omitempty"`
	Trouble string        `json:",omitempty"` // why there is no report
	Rules   string        `json:",omitempty"` // with Trouble: the version of the rules
	Before  *Outcome      `json:",omitempty"` // outcome of the previous report
	Graded  time.Time     // when
}

// An Outcome is the result of an earlier report.
type Outcome struct {
	Score    float64
	MaxScore float64
	Rejected string   `json:",omitempty"`
	Failed   []string // tests that cost points
	Rules    string
}

// OutcomeOf returns the Outcome of a report.
func OutcomeOf(r *grade.Report) *Outcome {
	o := &Outcome{Score: r.Score, MaxScore: r.MaxScore, Failed: r.Failed(), Rules: r.Rules}
	if r.Rejected != nil {
		o.Rejected = string(r.Rejected.Stage)
	}
	return o
}

// NewFolder creates the folder if it does not exist.
func NewFolder(path string) (Folder, error) {
	for _, dir := range []string{"reports", "students"} {
		if err := os.MkdirAll(filepath.Join(path, dir), 0o755); err != nil {
			return Folder{}, err
		}
	}
	return Folder{path}, nil
}

// lookup returns what is stored about a student, or nil.
func (f Folder) lookup(name string) *stored {
	s, err := read(f.report(name))
	if err != nil || s.Name != encode(name) {
		return nil
	}
	return &s
}

// Load returns the stored report of a submission. It returns false if there is none, or if it was stored with another
// key.
func (f Folder) Load(name, key string) (*grade.Report, bool) {
	s := f.lookup(name)
	if s == nil || s.Key != key || s.Report == nil {
		return nil, false // it is graded again
	}
	return s.Report, true
}

// Before returns the outcome of a student's previous report, which the stored report replaced. It returns nil if there
// was no previous report. It also returns the time at which the student was last graded.
func (f Folder) Before(name string) (*Outcome, time.Time) {
	if s := f.lookup(name); s != nil {
		return s.Before, s.Graded
	}
	return nil, time.Time{}
}

// Save stores a report. If the machine stops while Save writes, the old report is still complete.
func (f Folder) Save(name, key string, r *grade.Report) error {
	return f.replace(name, stored{File: r.File, Key: key, Report: r, Graded: time.Now().UTC().Truncate(time.Second)})
}

// SaveTrouble records that a submission could not be graded. Merge then does not lose the student, and the next run
// grades the submission again.
func (f Folder) SaveTrouble(r Result) error {
	return f.replace(r.Name, stored{File: r.File, Trouble: r.Err.Error(), Rules: r.Rules})
}

// replace stores s for a student and sets s.Before. If a report was stored before, s.Before is the outcome of that
// report. If only a trouble was stored (SaveTrouble), s.Before is copied from the trouble, where it is the outcome of
// an earlier report.
func (f Folder) replace(name string, s stored) error {
	if old := f.lookup(name); old != nil {
		if s.Before = old.Before; old.Report != nil {
			s.Before = OutcomeOf(old.Report)
		}
	}
	return f.save(name, s)
}

// Gone returns the students who have a stored report and are not among the results of this run.
func (f Folder) Gone(all []Result) []string {
	present := map[string]bool{}
	for _, r := range all {
		present[encode(r.Name)] = true
	}
	files, _ := filepath.Glob(filepath.Join(f.Path, "reports", "*.json"))
	var gone []string
	for _, file := range files {
		if s, err := read(file); err == nil && !present[s.Name] {
			if name, err := decode(s.Name); err == nil {
				gone = append(gone, name)
			}
		}
	}
	return gone
}

func (f Folder) save(name string, s stored) error {
	s.Name = encode(name)
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return jobs.Replace(f.report(name), text)
}

func (f Folder) report(name string) string {
	return filepath.Join(f.Path, "reports", fileName(name)+".json")
}

// Page returns the path of a student's page inside the folder.
func Page(name string) string { return "students/" + fileName(name) + ".html" }

// encode returns a name that is safe as a file name. Different names give different results.
func encode(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(url.PathEscape(name), "=", "%3D"), "%", "=")
}

func decode(encoded string) (string, error) {
	return url.PathUnescape(strings.ReplaceAll(encoded, "=", "%"))
}

const longest = 200 // bytes of a file's name without its ending; file systems allow 255

// fileName returns the encoded name or, if that is too long, its beginning and a hash of the name.
func fileName(name string) string {
	whole := encode(name)
	if len(whole) <= longest {
		return whole
	}
	hash := sha256.Sum256([]byte(name))
	return strings.TrimRight(whole[:longest-20], "=") + "=-" + hex.EncodeToString(hash[:8])
}

func read(path string) (stored, error) {
	var s stored
	text, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	if s.Report == nil && s.Trouble == "" {
		return s, fmt.Errorf("%s: no report", path)
	}
	return s, nil
}

// NoteShard records that a shard, one of several parts of the class, is graded into the folder.
func (f Folder) NoteShard(s jobs.Shard) error {
	return jobs.Replace(filepath.Join(f.Path, fmt.Sprintf(shardName, s.Index, s.Of)), nil)
}

const shardName = "shard-%d-of-%d"

// shards returns the shards whose results are in the folder, because they were graded into it or merged into it.
func (f Folder) shards() (all []jobs.Shard) {
	names, _ := fs.Glob(os.DirFS(f.Path), "shard-*-of-*") // the pattern is well-formed
	for _, name := range names {
		var s jobs.Shard
		if n, _ := fmt.Sscanf(name, shardName, &s.Index, &s.Of); n == 2 {
			all = append(all, s)
		}
	}
	return all
}

// MissingShards returns the shards that are missing in the folder. If it has shard 2/3, the class was divided into 3,
// and the missing ones are 1/3 and 3/3.
func (f Folder) MissingShards() (missing []jobs.Shard) {
	graded := map[jobs.Shard]bool{}
	numbers := map[int]bool{}
	for _, s := range f.shards() {
		graded[s], numbers[s.Of] = true, true
	}
	for _, of := range slices.Sorted(maps.Keys(numbers)) {
		for i := range of {
			if s := (jobs.Shard{Index: i + 1, Of: of}); !graded[s] {
				missing = append(missing, s)
			}
		}
	}
	return missing
}

// ErrTwice means that two folders have different reports of the same student.
var ErrTwice = errors.New("graded twice, differently")

// Merge copies the reports in the given folders into f. It returns all reports of f, old and new, sorted by name.
func (f Folder) Merge(folders []string) ([]Result, error) {
	seen := map[string]stored{}
	paths := map[string]string{}
	for _, dir := range append([]string{f.Path}, folders...) {
		files, err := os.ReadDir(filepath.Join(dir, "reports"))
		if err != nil {
			return nil, fmt.Errorf("%s: no reports in it: has llmgrade --html written there?", dir)
		}
		for _, entry := range files {
			file := filepath.Join(dir, "reports", entry.Name())
			if !strings.HasSuffix(file, ".json") { // it is being written
				continue
			}
			s, err := read(file)
			if err != nil {
				return nil, err
			}
			other, found := seen[s.Name]
			switch {
			case found && s.Report == nil: // another machine could grade it
				continue
			case found && other.Report != nil && other.Key != s.Key:
				return nil, fmt.Errorf("%s: %w in %s and %s: remove one of the two reports", s.Name, ErrTwice, paths[s.Name], file)
			}
			seen[s.Name], paths[s.Name] = s, file
		}
	}
	for _, dir := range folders {
		for _, s := range (Folder{dir}).shards() {
			if err := f.NoteShard(s); err != nil {
				return nil, err
			}
		}
	}
	var all []Result
	for _, s := range seen {
		name, err := decode(s.Name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", paths[s.Name], err)
		}
		if err := f.save(name, s); err != nil {
			return nil, err
		}
		r := Result{Submission: Submission{Name: name, File: s.File}, Report: s.Report, Rules: s.Rules}
		if s.Trouble != "" {
			r.Err = errors.New(s.Trouble)
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Result) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

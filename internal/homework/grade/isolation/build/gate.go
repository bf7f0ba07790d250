package build

import (
	"bytes"
	"debug/elf"
	_ "embed"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ErrGate means that the gate has refused a submission, because of its text or its object file. Every Refusal wraps
// it.
var ErrGate = errors.New("is not run")

// public lists the six functions of the handout.
var public = []string{"append_kv", "create_sequence", "fork_sequence", "free_sequence", "llm_destroy", "llm_init"}

//go:embed names.txt
var namesText string

var names = lists(namesText)

func lists(text string) map[string][]string {
	all, heading := map[string][]string{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			heading = strings.Trim(line, "[]")
		default:
			all[heading] = append(all[heading], strings.Fields(line)...)
		}
	}
	for _, name := range all["mathematics"] {
		all["allowed"] = append(all["allowed"], name, name+"f", name+"l")
	}
	return all
}

func listed(list string, candidates ...string) bool {
	return slices.ContainsFunc(candidates, func(name string) bool { return slices.Contains(names[list], name) })
}

// Limits of an object file in bytes.
const (
	maxCode = 1 << 20
	maxData = 16 << 20
)

// traps finds the instructions that enter the kernel in the output of objdump. trapBytes has the machine codes of these
// instructions. Other instructions can contain the same bytes, so code that contains them is disassembled.
var (
	traps     = regexp.MustCompile(`\t(syscall|sysenter|int +\$0x80)\b`)
	trapBytes = [][]byte{{0x0f, 0x05}, {0x0f, 0x34}, {0xcd, 0x80}}
)

// An object has the symbols of an object file.
type object struct {
	defined []string // of the six
	other   []string // further symbols that are visible outside
	needed  []string
}

// An objectGate checks an object file.
type objectGate struct {
	object
	*text // for the lines of words
	*verdicts
}

func (k *Kit) checkObject(file string, t *text, v *verdicts) (*object, error) {
	f, err := elf.Open(filepath.Join(k.dir, file))
	if err != nil {
		return nil, fmt.Errorf("read the object file: %w", err)
	}
	defer f.Close()
	g := &objectGate{text: t, verdicts: v}
	suspicious, err := g.sections(f)
	if err != nil {
		return nil, err
	}
	if suspicious {
		code, err := k.output("objdump", "-d", "--no-show-raw-insn", file)
		if err != nil {
			return nil, err
		}
		if trap := traps.Find(code); trap != nil {
			g.broken(0, "trap", "it calls the kernel by itself (%s)", bytes.TrimSpace(trap))
		}
	}
	symbols, err := f.Symbols()
	if err != nil {
		return nil, fmt.Errorf("read the object file: %w", err)
	}
	for _, s := range symbols {
		g.symbol(f, s)
	}
	g.others()
	return &g.object, v.err()
}

// sections checks the sections of an object file. suspicious reports whether the code contains trapBytes.
func (g *objectGate) sections(f *elf.File) (suspicious bool, err error) {
	var code, data uint64
	for _, s := range f.Sections {
		g.section(s)
		switch {
		case s.Flags&elf.SHF_EXECINSTR != 0:
			if code += s.Size; code > maxCode {
				g.refuse(&Refusal{0, "size", fmt.Sprintf("it has more than %d bytes of code", maxCode)})
				return false, g.err()
			}
			text, err := s.Data()
			if err != nil {
				return false, fmt.Errorf("read the object file: %w", err)
			}
			suspicious = suspicious || slices.ContainsFunc(trapBytes, func(trap []byte) bool { return bytes.Contains(text, trap) })
		case s.Flags&elf.SHF_ALLOC != 0:
			if s.Size > maxData || data+s.Size > maxData {
				g.refuse(&Refusal{0, "size", fmt.Sprintf("it has more than %d bytes of global data", maxData)})
				return false, g.err()
			}
			data += s.Size
		}
	}
	return suspicious, g.err()
}

func (g *objectGate) section(s *elf.Section) {
	name := strings.TrimPrefix(strings.TrimPrefix(s.Name, ".rela"), ".rel")
	for _, early := range []string{".init", ".fini", ".ctors", ".dtors", ".preinit"} {
		if strings.HasPrefix(name, early) {
			g.broken(g.line("constructor", "destructor", "__constructor__", "__destructor__"), "early",
				"it has code that runs outside the six calls (section %s)", s.Name)
			return
		}
	}
	known := s.Name == "" || listed("sections", s.Name, name) ||
		slices.ContainsFunc(names["section families"], func(family string) bool { return name == family || strings.HasPrefix(name, family+".") })
	executable := s.Flags&elf.SHF_EXECINSTR != 0
	line := g.line("section", "__section__")
	switch {
	case !known:
		g.broken(line, "section", "it has a section of its own (%.60q)", s.Name)
	case s.Name == ".note.GNU-stack" && executable:
		g.broken(0, "section", "it needs a stack that code can run on: a function inside a function does that")
	case executable && (!strings.HasPrefix(s.Name, ".text") || s.Flags&elf.SHF_WRITE != 0):
		g.broken(line, "section", "it has code outside .text (section %.60q)", s.Name)
	}
}

func (g *objectGate) symbol(f *elf.File, s elf.Symbol) {
	const indirect = elf.SymType(10) // STT_GNU_IFUNC
	bind, typ := elf.ST_BIND(s.Info), elf.ST_TYPE(s.Info)
	line := g.line(plain(s.Name), s.Name)
	code := int(s.Section) < len(f.Sections) && f.Sections[s.Section].Flags&elf.SHF_EXECINSTR != 0
	switch {
	case typ == indirect:
		g.broken(line, "ifunc", "it lets code of its own choose what %s is before it runs", s.Name)
	case bind == elf.STB_LOCAL:
	case s.Section == elf.SHN_UNDEF:
		g.needed = append(g.needed, s.Name)
		g.needs(s.Name, line)
	case !slices.Contains(public, s.Name):
		g.other = append(g.other, s.Name)
	case typ != elf.STT_FUNC || !code:
		g.broken(line, "symbol", "%s is not a function", s.Name)
	default:
		g.defined = append(g.defined, s.Name)
		if bind != elf.STB_GLOBAL {
			g.broken(line, "weak", "%s is weak: others could take its place", s.Name)
		}
	}
}

func (g *objectGate) needs(symbol string, line int) {
	name := plain(symbol)
	switch {
	case listed("allowed", symbol, name) || slices.Contains(public, symbol):
	case listed("refusing", symbol, name):
		g.broken(line, "refused", "it uses %s: the sandbox refuses most of what such functions ask the system for, so what depends on it may not work here", name)
	case listed("reading", symbol, name):
		g.broken(line, "refused", "it uses %s, which finds nothing here: standard input and the environment are empty", name)
	default:
		g.broken(line, "needs", "it uses %s, which the homework has no use for", name)
	}
}

func (g *objectGate) others() {
	var ours, ofLibrary []string
	for _, name := range g.other {
		switch {
		case name == "main":
			g.broken(g.line("main"), "main",
				"it defines main: linked with the main program of the course it fails. Take it out before you hand it in")
		case listed("allowed", name) || listed("refusing", name) || listed("reading", name):
			ofLibrary = append(ofLibrary, name)
		default:
			ours = append(ours, name)
		}
	}
	if len(ofLibrary) > 0 {
		g.broken(g.line(ofLibrary[0]), "defines",
			"it defines %s, as the C library does: the test program's calls would go there, too. Give %s",
			list(ofLibrary), ofNumber(ofLibrary, "it another name", "them other names"))
	}
	if len(ours) > 0 {
		g.broken(g.line(ours[0]), "defines",
			"it defines %s, which other files can see: static would keep %s to this file", list(ours), ofNumber(ours, "it", "them"))
	}
}

func ofNumber(names []string, one, many string) string {
	if len(names) == 1 {
		return one
	}
	return many
}

func list(names []string) string {
	text := strings.Join(names[:min(len(names), 6)], ", ")
	if omitted := len(names) - 6; omitted > 0 {
		text += fmt.Sprintf(" and %d more", omitted)
	}
	return text
}

// plain returns the name of a function as a student writes it. The headers of newer C libraries replace memcpy by
// __memcpy_chk, strtol by __isoc23_strtol and signal by __sysv_signal.
func plain(symbol string) string {
	if name, found := strings.CutPrefix(symbol, "__"); found {
		if name, found := strings.CutSuffix(name, "_chk"); found {
			return name
		}
		for _, standard := range []string{"isoc99_", "isoc23_", "builtin_", "sysv_"} {
			if name, found := strings.CutPrefix(name, standard); found {
				return name
			}
		}
	}
	return symbol
}

package ptx

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A parser reads a kernel.
type parser struct {
	kernel  *Kernel
	scopes  []map[string]int // registers by name, the innermost scope last
	labels  map[string]int
	targets map[int]string // labels of branches
}

var (
	comment   = regexp.MustCompile(`//[^\n]*`)
	parameter = regexp.MustCompile(`\.param (?:\.align (\d+) )?\.[a-z](\d+) (\w+)(?:\[(\d+)\])?`)
	shared    = regexp.MustCompile(`\.shared \.align (\d+) \.[a-z](\d+) (\w+)(\[\d*\])?`)
	register  = regexp.MustCompile(`^\.reg\s+\.\w+\s+(%?\w+)(?:<(\d+)>)?$`)
	label     = regexp.MustCompile(`^([$\w]+):(?:[^:]|$)`)
	guard     = regexp.MustCompile(`^@(!?)(%?\w+)\s+`)
)

// Compile reads a kernel of a PTX file. The error names an instruction that the interpreter does not know.
func Compile(text, name string) (*Kernel, error) {
	_, after, found := strings.Cut(text, ".entry "+name+"(")
	list, body, whole := strings.Cut(after, "\n{")
	body, _, ended := strings.Cut(body, "\n}")
	if !found || !whole || !ended {
		return nil, fmt.Errorf("the PTX has no kernel %s", name)
	}
	k := &Kernel{name: name, constants: map[uint64]int{}, specials: map[string]int{}, symbols: map[string]uint64{}}
	p := &parser{kernel: k, scopes: []map[string]int{{}}, labels: map[string]int{}, targets: map[int]string{}}
	p.declareParameters(list)
	p.declareShared(text, body)
	if err := p.read(comment.ReplaceAllString(body, "")); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for branch, label := range p.targets {
		target, ok := p.labels[label]
		if !ok {
			return nil, fmt.Errorf("%s: there is no label %s", name, label)
		}
		k.code[branch].target = target
	}
	k.counted = make([]counter, len(k.code))
	return k, nil
}

func (p *parser) declareParameters(list string) {
	end := 0
	for _, found := range parameter.FindAllStringSubmatch(list, -1) {
		bits, elements, align := number(found[2]), max(number(found[4]), 1), number(found[1])
		size := bits / 8 * elements
		end = roundUp(end, max(align, bits/8))
		p.kernel.parameters = append(p.kernel.parameters, variable{end, size})
		p.kernel.symbols[found[3]] = uint64(end)
		end += size
	}
}

// declareShared gives an address to each shared variable that the kernel names. Dynamic memory begins behind them, at a
// multiple of 16.
func (p *parser) declareShared(text, body string) {
	end := 0
	var dynamic []string
	for _, found := range shared.FindAllStringSubmatch(text, -1) {
		name := found[3]
		switch {
		case !strings.Contains(body, name):
			continue
		case found[4] == "[]":
			dynamic = append(dynamic, name)
			continue
		}
		end = roundUp(end, number(found[1]))
		p.kernel.symbols[name] = uint64(end)
		end += number(found[2]) / 8 * max(number(strings.Trim(found[4], "[]")), 1)
	}
	p.kernel.declared = roundUp(end, 16)
	for _, name := range dynamic {
		p.kernel.symbols[name] = uint64(p.kernel.declared)
	}
}

// number returns 0 for a text that is not a number.
func number(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

func roundUp(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }

// read reads the statements of a body.
func (p *parser) read(body string) error {
	for body = strings.TrimSpace(body); body != ""; body = strings.TrimSpace(body) {
		if found := label.FindStringSubmatch(body); found != nil {
			p.labels[found[1]] = len(p.kernel.code)
			body = body[len(found[1])+1:]
			continue
		}
		switch body[0] {
		case '{':
			p.scopes = append(p.scopes, map[string]int{})
			body = body[1:]
			continue
		case '}':
			p.scopes = p.scopes[:len(p.scopes)-1]
			body = body[1:]
			continue
		}
		statement, rest, ended := strings.Cut(body, ";")
		if !ended {
			return fmt.Errorf("%s: a semicolon is missing", statement)
		}
		if err := p.statement(strings.TrimSpace(statement)); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
		body = rest
	}
	return nil
}

func (p *parser) statement(text string) error {
	if found := register.FindStringSubmatch(text); found != nil {
		scope := p.scopes[len(p.scopes)-1]
		if found[2] == "" {
			scope[found[1]] = p.newRegister()
			return nil
		}
		for i := range number(found[2]) {
			scope[found[1]+strconv.Itoa(i)] = p.newRegister()
		}
		return nil
	}
	if strings.HasPrefix(text, ".") {
		if strings.HasPrefix(text, ".shared ") || strings.HasPrefix(text, ".pragma ") {
			return nil
		}
		if strings.HasPrefix(text, ".local ") {
			return errors.New("local memory is slow: the interpreter refuses it")
		}
		return errors.New("the interpreter does not know the directive")
	}
	line := instruction{text: text, guard: -1}
	if found := guard.FindStringSubmatch(text); found != nil {
		predicate, err := p.operand(found[2])
		if err != nil {
			return err
		}
		line.guard, line.negate = predicate.registers[0], found[1] == "!"
		text = text[len(found[0]):]
	}
	list := ""
	if end := strings.IndexAny(text, " \t"); end >= 0 {
		text, list = text[:end], text[end:]
	}
	line.opcode = text
	if text == "bra" || text == "bra.uni" {
		line.flow = branch
		p.targets[len(p.kernel.code)] = strings.TrimSpace(list)
		p.kernel.code = append(p.kernel.code, line)
		return nil
	}
	var err error
	if line.reads, err = p.operands(list); err != nil {
		return err
	}
	if err := line.compile(); err != nil {
		return err
	}
	p.kernel.code = append(p.kernel.code, line)
	return nil
}

func (p *parser) newRegister() int {
	p.kernel.registers++
	return p.kernel.registers - 1
}

// operands reads operands that commas separate.
func (p *parser) operands(list string) ([]operand, error) {
	var all []operand
	for list = strings.TrimSpace(list); list != ""; list = strings.TrimSpace(list) {
		end := strings.IndexByte(list, ',')
		if closing := strings.IndexAny(list[:1], "{["); closing == 0 {
			end = strings.IndexAny(list, "}]") + 1
		}
		if end <= 0 {
			end = len(list)
		}
		o, err := p.operand(strings.TrimSpace(list[:end]))
		if err != nil {
			return nil, err
		}
		all = append(all, o)
		list = strings.TrimPrefix(strings.TrimSpace(list[end:]), ",")
	}
	return all, nil
}

func (p *parser) operand(text string) (operand, error) {
	switch {
	case strings.HasPrefix(text, "{"):
		elements, err := p.operands(strings.Trim(text, "{}"))
		var vector operand
		for _, e := range elements {
			vector.registers = append(vector.registers, e.registers...)
		}
		return vector, err
	case strings.HasPrefix(text, "["):
		base, offset, displaced := strings.Cut(strings.Trim(text, "[]"), "+")
		o, err := p.operand(strings.TrimSpace(base))
		if err != nil || !displaced {
			return operand{o.registers, 0, true}, err
		}
		n, err := strconv.ParseInt(strings.TrimSpace(offset), 0, 64)
		return operand{o.registers, uint64(n), true}, err
	}
	r, err := p.register(text)
	return operand{registers: []int{r}}, err
}

// register returns the register that has a name, or the register that holds a constant or an address.
func (p *parser) register(name string) (int, error) {
	for i := len(p.scopes) - 1; i >= 0; i-- {
		if r, ok := p.scopes[i][name]; ok {
			return r, nil
		}
	}
	if address, ok := p.kernel.symbols[name]; ok {
		return p.constant(address), nil
	}
	if strings.HasPrefix(name, "%") {
		if _, known := specials[name]; !known {
			return 0, fmt.Errorf("there is no register %s", name)
		}
		if _, ok := p.kernel.specials[name]; !ok {
			p.kernel.specials[name] = p.newRegister()
		}
		return p.kernel.specials[name], nil
	}
	if bits, ok := strings.CutPrefix(name, "0f"); ok {
		name = "0x" + bits
	}
	if x, err := strconv.ParseInt(name, 0, 64); err == nil {
		return p.constant(uint64(x)), nil
	}
	x, err := strconv.ParseUint(name, 0, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is no register, number or variable", name)
	}
	return p.constant(x), nil
}

func (p *parser) constant(x uint64) int {
	if _, ok := p.kernel.constants[x]; !ok {
		p.kernel.constants[x] = p.newRegister()
	}
	return p.kernel.constants[x]
}

package weights

import (
	"fmt"
	"strings"
)

// addParts maps the other files of a model in n files, of which g is the first. Their names are those that
// llama-gguf-split gives them.
func (g *GGUF) addParts(path string, n int64) error {
	name := func(part int64) string { return fmt.Sprintf("-%05d-of-%05d.gguf", part, n) }
	if no, _ := g.Meta["split.no"].Int(); no != 0 { // counted from 0
		return unsupported("%s is file %d of the %d of a model; give the first one", path, no+1, n)
	}
	prefix, ok := strings.CutSuffix(path, name(1))
	if !ok {
		return unsupported("%s is the first of the %d files of a model; to find the others, its name must end in %s", path,
			n, name(1))
	}
	for i := int64(2); i <= n; i++ {
		part, err := openGGUF(prefix + name(i))
		if err != nil {
			return fmt.Errorf("file %d of the %d of the model: %w", i, n, err)
		}
		g.files = append(g.files, part.files...)
		if err := g.join(part, i-1, n); err != nil {
			return fmt.Errorf("%s: %w", prefix+name(i), err)
		}
	}
	if want, ok := g.Meta["split.tensors.count"].Int(); ok && want != int64(len(g.byName)) {
		return damaged("the %d files of %s have %d tensors, the first one says %d", n, path, len(g.byName), want)
	}
	return nil
}

// join adds the tensors of part number no, counted from 0, of n.
func (g *GGUF) join(part *GGUF, no, n int64) error {
	haveNo, _ := part.Meta["split.no"].Int()
	haveN, _ := part.Meta["split.count"].Int()
	if haveNo != no || haveN != n {
		return damaged("it says that it is file %d of %d; is it of another model?", haveNo+1, haveN)
	}
	for name, t := range part.byName {
		if g.byName[name] != nil {
			return damaged("tensor %q is in two files", shown(name))
		}
		g.byName[name] = t
	}
	return nil
}

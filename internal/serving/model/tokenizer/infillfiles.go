package tokenizer

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// An InfillFile is a file, or a part of one, that a model sees before the text whose middle it fills in.
type InfillFile struct{ Name, Text string }

// The text before a file if the vocabulary has no token for it, and names for what clients do not name; all are
// llama.cpp's (format_prompt_infill).
const (
	snippet     = "\n\n--- snippet ---\n\n"
	projectName = "myproject"
	fileName    = "filename"
)

// EncodeFiles is like Encode, but the prompt has other files before the prefix, as llama.cpp's server writes them. If not
// all fit into limit-spare tokens, the first ones are left out.
func (f *Infill) EncodeFiles(
	ctx context.Context, files []InfillFile, prefix, suffix string, addSpecial bool, limit, spare int,
) ([]int32, error) {
	whole, err := f.Encode(ctx, prefix, suffix, addSpecial, limit)
	if err != nil {
		return nil, err
	}
	var begin, end []int32
	if f.repository >= 0 {
		if begin, err = f.marked(ctx, f.repository, projectName+"\n", limit); err != nil {
			return nil, err
		}
	}
	if f.separator >= 0 {
		if end, err = f.marked(ctx, f.separator, fileName+"\n", limit); err != nil {
			return nil, err
		}
	}
	room := limit - spare - len(whole) - len(begin) - len(end)
	var kept [][]int32 // from the last file
	for _, file := range slices.Backward(files) {
		tokens, err := f.file(ctx, file, room)
		if errors.Is(err, ErrTooMany) {
			break
		}
		if err != nil {
			return nil, err
		}
		kept, room = append(kept, tokens), room-len(tokens)
	}
	if len(kept) == 0 {
		return whole, nil
	}
	slices.Reverse(kept)
	first := 0
	if addSpecial {
		first = len(f.tokenizer.first)
	}
	return slices.Concat(whole[:first], begin, slices.Concat(kept...), end, whole[first:]), nil
}

func (f *Infill) file(ctx context.Context, file InfillFile, limit int) ([]int32, error) {
	if f.separator < 0 {
		return f.marked(ctx, -1, snippet+file.Text, limit)
	}
	return f.marked(ctx, f.separator, file.Name+"\n"+file.Text, limit)
}

// marked returns a token, unless it is -1, and the tokens of a text, in which the names of protected tokens are ordinary
// text.
func (f *Infill) marked(ctx context.Context, mark int32, text string, limit int) ([]int32, error) {
	t := f.tokenizer
	if limit < 1 || !t.Fits(limit)(text) {
		return nil, ErrTooMany
	}
	e := encoder{t: t, ctx: ctx, limit: limit, window: window, joined: true}
	if mark >= 0 {
		e.out = append(e.out, mark)
	}
	e.parts(strings.ToValidUTF8(text, "\uFFFD"), false, func(_, _ int, id int32) bool { return !t.protected(id) })
	if e.stopped() {
		return nil, e.err
	}
	return e.out, nil
}

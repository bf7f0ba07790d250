package model

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// allUsed returns an error if a tensor of a GGUF file was not used, because llama.cpp may use it.
func (l *loader) allUsed() error {
	l.used[ropeFactors] = l.config.Rope.Factors != nil // read by ropeFromGGUF
	l.used[ropeShort], l.used[ropeLong] = l.config.Rope.Long != nil, l.config.Rope.Long != nil
	for _, name := range l.files.Names() {
		var layer int
		n, _ := fmt.Sscanf(name, "blk.%d.", &layer)
		if n == 1 && layer >= l.config.NumLayers && layer < l.config.NumLayers+l.config.DraftLayers {
			continue
		}
		if n == 1 && layer >= l.config.NumLayers {
			return refused("the file has tensors of layer %d; %s.block_count is %d", layer, l.config.Family,
				l.config.NumLayers)
		}
		if !l.used[name] && !l.scores(name) {
			return refused("the tensor %q is not supported in models of the architecture %q", name, l.config.Family)
		}
	}
	return nil
}

// notReported matches the names of tensors that Model.Unused does not report. The tensors of frequencies and masks are
// not needed, because this package computes these numbers. Scales are read with their weights or have no effect. The
// tensors of mtp are a layer for drafts. The other tensors process images and sound.
var notReported = regexp.MustCompile(
	`(inv_freq|masked_bias|_scale|_scale_inv|\.scales)$|vision_tower\.|vision_model\.|\.visual\.|audio_tower\.|embed_(vision|audio)\.|multi_modal_projector\.|^mtp\.`)

// drafts reports whether a tensor of a folder belongs to a layer for drafts.
func (l *loader) drafts(name string) bool {
	rest, found := strings.CutPrefix(name, l.prefix+"layers.")
	number, _, _ := strings.Cut(rest, ".")
	layer, err := strconv.Atoi(number)
	return found && err == nil && layer >= l.config.NumLayers && layer < l.config.NumLayers+l.config.DraftLayers
}

// unusedNames returns the names for Model.Unused. It returns an error if the bias of used weights is unused and not 0,
// because such a bias would change the logits.
func (l *loader) unusedNames() (names []string, err error) {
	for _, name := range l.files.Names() {
		base, bias := strings.CutSuffix(name, ".bias")
		tied := l.config.TieEmbeddings && strings.HasSuffix(name, l.names.head+".weight")
		switch {
		case l.used[name] || tied || l.scores(name) || notReported.MatchString(name) || l.drafts(name):
		case !bias || !l.used[base+".weight"]:
			names = append(names, name)
		case slices.ContainsFunc(l.files.Get(name).Vector(), func(v float32) bool { return v != 0 }):
			return nil, refused("the tensor %q is not 0; models of the type %q have no such bias", name, l.config.Family)
		}
	}
	return names, nil
}

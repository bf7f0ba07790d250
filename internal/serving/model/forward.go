package model

func (r *Runner) layer(i int, b *Batch) error {
	n := len(b.Tokens)
	l := &r.model.layers[i]
	r.adaptation.choose(0, n)
	var err error
	switch {
	case l.recurrent != nil:
		err = r.recur(i, b)
	case l.mixed != nil:
		err = r.mixedAttention(i, b)
	case r.model.Mixes(i):
		err = r.attention(i, b)
	}
	if err != nil || !r.model.feeds(i) {
		return err
	}
	if err := r.feedForward(l, n); err != nil || l.mixed == nil {
		return err
	}
	r.adaptation.choose(0, n)
	return r.finishMixed(i, n)
}

// attention computes the attention of a layer, up to and including its projection to the residual stream.
func (r *Runner) attention(i int, b *Batch) error {
	m, n := r.model, len(b.Tokens)
	l := &m.layers[i]
	normed := r.normalized(&l.attnNorm, n)
	r.multiply(&l.qkv, r.qkv, normed, n)
	if m.QKNorm == WidthNorm {
		if err := r.sumSquares(n); err != nil {
			return err
		}
	}
	angles := r.angles[m.RopeOf(i)]
	r.tokens.Rotation = nil
	switch {
	case m.Latent != nil:
		r.latentQueries(l, b, angles)
	case angles != nil || m.QKNorm != NoQKNorm || m.Temperature != nil:
		if angles != nil && m.QKNorm != RotatedNorm {
			r.tokens.Rotation = &angles.rotation
		}
		r.each(n, rowJob{op: opRotate, layer: l, positions: b.Positions, angles: angles})
	}
	place := r.places[i]
	blocks := b.blocks(place.Group)
	r.tokens.Slots = blocks.Slots
	if err := r.store.Write(place.Layer, &r.tokens); err != nil {
		return err
	}
	r.batch.BlockTables, r.batch.TableStride = blocks.BlockTables, blocks.TableStride
	r.batch.CommonPrefix, r.batch.Sinks = blocks.CommonPrefix, l.sinks
	r.batch.SlidingWindow, r.batch.Chunk = m.Window(i), m.Chunk(i)
	if err := r.attend.Forward(r.store.Layer(place.Layer), &r.batch); err != nil {
		return err
	}
	if m.Latent != nil {
		r.latentValues(l, n)
	}
	if m.Gate {
		r.gateAttention(l, normed, n)
	}
	return r.addProduct(&l.out, &l.attnPost, r.x, r.attended, n)
}

// feedForward computes the MLP or the experts of a layer.
func (r *Runner) feedForward(l *layer, n int) error {
	m := r.model
	normed := r.normalized(&l.mlpNorm, n)
	for start := 0; start < n; {
		rows := r.mlpRows(n - start)
		x, input := r.x[start*m.HiddenSize:], normed[start*m.HiddenSize:]
		r.adaptation.choose(start, rows)
		if l.experts != nil {
			if err := r.mixture(l, input, rows); err != nil {
				return err
			}
			r.each(rows, rowJob{op: opAdd, residual: x, norm: &l.mlpPost})
		} else {
			r.firstHalf(&l.mlp, input, rows)
			if err := r.addProduct(&l.mlp.downProj, &l.mlpPost, x, r.act, rows); err != nil {
				return err
			}
		}
		start += rows
	}
	return nil
}

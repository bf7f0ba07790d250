package main

import (
	"errors"
	"slices"

	"llmmemory/internal/serving/model"
)

// A weightStore frees the weights of a loaded model and reads them again from its files. It implements
// engine.WeightStore.
type weightStore struct {
	l *loaded
	o *modelOptions
}

// Free implements engine.WeightStore.
func (s *weightStore) Free() (err error) {
	for i := range s.l.workers {
		w := &s.l.workers[i]
		if w.Model != nil {
			err = errors.Join(err, w.Model.Close())
		}
		w.Model = nil
	}
	return err
}

// Load implements engine.WeightStore.
func (s *weightStore) Load() (models []*model.Model, err error) {
	defer func() {
		if err != nil {
			models, err = nil, errors.Join(err, s.Free())
		}
	}()
	if s.l.reopen != nil {
		if err := s.l.reopen(); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.l.closeFiles()) }()
	}
	if err := s.o.lora.open(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.o.lora.close()) }()
	if err := s.checkFiles(); err != nil {
		return nil, err
	}
	for i := range s.l.workers {
		w := &s.l.workers[i]
		m, err := s.l.part(w.Pool, model.Part{Rank: i, Size: s.o.workers}, s.o.lora.option()...)
		if err != nil {
			return nil, err
		}
		w.Model = m
		models = append(models, m)
	}
	return models, nil
}

// checkFiles returns an error if there is a tier and the contents of the open files are not those from which its blocks
// were computed.
func (s *weightStore) checkFiles() error {
	if !s.o.offload.used() {
		return nil
	}
	content, _, err := s.l.identity()
	if err != nil {
		return err
	}
	if content != s.l.content || !slices.Equal(s.o.lora.fingerprints(), s.o.lora.contents) {
		return errors.New("the files of the model or of an adapter have changed, and --kv-offload-dir or --kv-offload-url has blocks of the " +
			"former ones; start the server again")
	}
	return nil
}

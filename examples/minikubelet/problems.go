package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/control"
)

// problems are the current problems of manifests, by path. The zero value has none.
type problems struct {
	mu     sync.Mutex
	byPath map[string]error
}

// note sets the problem of a manifest; nil means that it has none any more.
func (p *problems) note(path string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		delete(p.byPath, path)
		return
	}
	if p.byPath == nil {
		p.byPath = map[string]error{}
	}
	p.byPath[path] = err
}

// err returns all problems, each with its path, and nil if there is none.
func (p *problems) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(p.byPath)) {
		errs = append(errs, fmt.Errorf("manifest %s: %w", path, p.byPath[path]))
	}
	return errors.Join(errs...)
}

// list returns all problems, sorted by path.
func (p *problems) list() []control.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := []control.Problem{}
	for _, path := range slices.Sorted(maps.Keys(p.byPath)) {
		all = append(all, control.Problem{Path: path, Error: p.byPath[path].Error()})
	}
	return all
}

package local

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
)

// Problems are the current problems of manifests, by path. The zero value has none.
type Problems struct {
	mu     sync.Mutex
	byPath map[string]problem
}

// problem is an error of a manifest, and when it was found.
type problem struct {
	err   error
	since time.Time
}

// Note sets the problem of a manifest; nil means that it has none any more.
func (p *Problems) Note(path string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		delete(p.byPath, path)
		return
	}
	if p.byPath == nil {
		p.byPath = map[string]problem{}
	}
	p.byPath[path] = problem{err, time.Now()}
}

// isWarning reports whether the manifest is used.
func isWarning(err error) bool {
	_, ok := errors.AsType[*manifest.Warning](err)
	return ok
}

// Err returns all problems that are no warnings, each with its path, and nil if there is none.
func (p *Problems) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(p.byPath)) {
		if err := p.byPath[path].err; !isWarning(err) {
			errs = append(errs, fmt.Errorf("manifest %s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// list returns all problems, sorted by path.
func (p *Problems) list() []control.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := []control.Problem{}
	for _, path := range slices.Sorted(maps.Keys(p.byPath)) {
		found := control.Problem{Path: path, Error: p.byPath[path].err.Error(), Since: p.byPath[path].since,
			Warning: isWarning(p.byPath[path].err)}
		if invalid := (*manifest.InvalidError)(nil); errors.As(p.byPath[path].err, &invalid) {
			found.Pod = invalid.Pod.Namespace + "/" + invalid.Pod.Name
		}
		all = append(all, found)
	}
	return all
}

// rejected returns the pods of sources that the agent rejects. Their manifests can be read.
func rejected(sources []podconfig.SourceState) (all []control.Problem) {
	for _, s := range sources {
		for _, r := range s.Rejected {
			all = append(all, control.Problem{Path: "source " + s.Name, Error: r.Err.Error(), Pod: r.Pod.Namespace +
				"/" + r.Pod.Name, Since: r.Since})
		}
	}
	return all
}

// maxProblemLines is the number of problems below the table of a terminal.
const maxProblemLines = 5

// ProblemLines returns headings and a line for each problem, for a terminal.
func ProblemLines(list []control.Problem) []string {
	broken, used := control.ByUse(list)
	return append(problemLines("Manifests that cannot be used:", broken),
		problemLines("Manifests of which something is ignored:", used)...)
}

func problemLines(heading string, list []control.Problem) []string {
	if len(list) == 0 {
		return nil
	}
	lines := []string{"", heading}
	for i, p := range list {
		if i == maxProblemLines {
			lines = append(lines, fmt.Sprintf("  and %d more; see the command pods", len(list)-i))
			break
		}
		lines = append(lines, "  "+terminal.Escape(p.Path)+": "+
			terminal.Escape(strings.Join(strings.Fields(p.Error), " ")))
	}
	return lines
}

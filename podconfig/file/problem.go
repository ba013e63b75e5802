package file

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// conflictPrefix begins the keys of conflicts between files.
const conflictPrefix = "conflict of "

// report records the problem of a subject, nil for none, and reports it if it is new.
// The key identifies the subject; path is the file or directory that it is about.
func (s *state) report(key, path string, err error) {
	if crash := (*runtime.PanicError)(nil); errors.As(err, &crash) {
		err = fmt.Errorf("bug in this program while reading it: %w", crash)
	}
	last, had := s.problems[key]
	switch {
	case err == nil && !had, err != nil && had && last == err.Error():
		return
	case err == nil:
		delete(s.problems, key)
		s.opts.Logger.Info("Problem with manifests is gone", "path", path)
	default:
		s.problems[key] = err.Error()
		if _, ignored := errors.AsType[*manifest.Warning](err); ignored {
			for _, pod := range s.podsOf(key, err) {
				s.sink.Warn(pod, fmt.Errorf("manifest %s: %w", path, err))
			}
			break
		}
		rejection := fmt.Errorf("problem with manifests in %s: %w; %s", path, err, s.effect(key, path))
		for _, pod := range s.podsOf(key, err) {
			s.sink.Reject(pod, rejection)
		}
	}
	if s.opts.Problem != nil {
		s.opts.Problem(path, err)
	}
}

// effect returns what a new problem means for the pods.
func (s *state) effect(key, path string) string {
	m := s.files[path]
	switch neverValid := key == path && m != nil && !m.good; {
	case strings.HasPrefix(key, conflictPrefix):
		return "the rest of the file is used"
	case neverValid && len(s.restored) > 0:
		return "the file has not been valid yet, restored pods that no other file has go on"
	case neverValid:
		return "the file has not been valid yet, its pods do not run"
	default:
		return "the last valid content stays"
	}
}

// podsOf returns the pods that the error is about: the pod that it names, or if the key is the path of a file, those of
// its last valid content. If there are none, it returns one zero pod.
func (s *state) podsOf(key string, err error) []runtime.PodRef {
	var (
		invalid  *manifest.InvalidError
		conflict *conflictError
	)
	switch m := s.files[key]; {
	case errors.As(err, &invalid):
		return []runtime.PodRef{invalid.Pod}
	case errors.As(err, &conflict):
		return []runtime.PodRef{conflict.pod}
	case m != nil && len(m.pods) > 0:
		refs := make([]runtime.PodRef, len(m.pods))
		for i, pod := range m.pods {
			refs[i] = runtime.RefOf(pod)
		}
		return refs
	}
	return []runtime.PodRef{{}}
}

// reportConflicts reports the conflicts, by path, and the end of the conflicts that
// were reported before. The prefix makes their keys.
func (s *state) reportConflicts(prefix string, conflicts map[string]error) {
	for path, err := range conflicts {
		s.report(prefix+path, path, err)
	}
	for key := range s.problems {
		if path, ok := strings.CutPrefix(key, prefix); ok && conflicts[path] == nil {
			s.report(key, path, nil)
		}
	}
}

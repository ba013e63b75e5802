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
	crash := (*runtime.PanicError)(nil)
	if errors.As(err, &crash) {
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
		log := s.opts.Logger
		if crash != nil {
			log = log.WithValues("stack", string(crash.Stack))
		}
		m := s.files[path]
		switch neverValid := key == path && m != nil && !m.good; {
		case strings.HasPrefix(key, conflictPrefix):
			log.Error(err, "Problem with manifests; the rest of the file is used", "path", path)
		case neverValid && len(s.restored) > 0:
			log.Error(err, "Problem with manifests; the file has not been valid yet, restored pods that no other file has go on", "path", path)
		case neverValid:
			log.Error(err, "Problem with manifests; the file has not been valid yet, its pods do not run", "path", path)
		default:
			log.Error(err, "Problem with manifests; the last valid content stays", "path", path)
		}
	}
	s.reject(err)
	if s.opts.Problem != nil {
		s.opts.Problem(path, err)
	}
}

// reject reports the pod that cannot be delivered because of the error, if it names one.
func (s *state) reject(err error) {
	if s.sink == nil {
		return
	}
	var (
		invalid  *manifest.InvalidError
		conflict *conflictError
	)
	switch {
	case errors.As(err, &invalid):
		s.sink.Reject(invalid.Pod, err)
	case errors.As(err, &conflict):
		s.sink.Reject(conflict.pod, err)
	}
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

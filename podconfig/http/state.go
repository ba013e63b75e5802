package http

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"time"

	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	v1 "k8s.io/api/core/v1"
)

// state is what a source knows of its URL. One goroutine owns it.
type state struct {
	url  *url.URL
	node string
	opts Options

	// known says that the pods were read once, and pods are those that were read
	// last. Both are of the last answer that was good.
	known bool
	pods  []*v1.Pod
	// last is the answer that was parsed last, good or bad, without its body.
	last *answer
	// sum is that of its body, and err what is wrong with it.
	sum [sha256.Size]byte
	err error

	// unanswered counts the requests since the last that had an answer, and failures
	// the looks since the last that came to good pods.
	unanswered, failures int
	// problem is what was told last, "" if all is well.
	problem string
}

// answer is what a server said of the pods.
type answer struct {
	// unchanged says that it is what it said last.
	unchanged bool
	body      []byte
	// url is where it came from, after all redirects; the validators hold for that.
	url            string
	etag, modified string
}

// take brings the state up to date with an answer, or the error of getting none. It
// returns whether the pods differ from before.
func (s *state) take(a *answer, err error) (changed bool) {
	if err != nil {
		s.unanswered++
		s.report(err)
		return false
	}
	s.unanswered = 0
	if !a.unchanged {
		changed = s.parse(a.body)
		s.last = &answer{url: a.url, etag: a.etag, modified: a.modified}
	}
	s.report(s.err)
	return changed
}

// parse replaces the pods by those of the body, if that is new and good.
func (s *state) parse(body []byte) (changed bool) {
	sum := sha256.Sum256(body)
	if s.last != nil && sum == s.sum {
		return false
	}
	s.sum = sum
	opts := manifest.Options{
		NodeName: s.node, Source: manifest.SourceHTTP, Origin: s.url.String(),
		Allow: s.opts.Allow,
	}
	if s.opts.Lenient {
		opts.Warn = func(err error) {
			s.opts.Logger.Info("Manifest has fields that are not understood", "url", s.url.Redacted(), "problem", err.Error())
		}
	}
	pods, err := manifest.Load(body, opts)
	if s.err = err; err != nil {
		s.err = fmt.Errorf("GET %s: %w", s.url.Redacted(), err)
		return false
	}
	s.known, s.pods = true, pods
	return true
}

// minRetry is the wait after the first request that had no answer. It doubles with
// each further one.
const minRetry = time.Second

// wait returns the time until the next request.
func (s *state) wait() time.Duration {
	if s.unanswered == 0 || s.unanswered > 30 {
		return s.opts.CheckFrequency
	}
	return min(minRetry<<(s.unanswered-1), s.opts.CheckFrequency)
}

// report tells of what is wrong, or with nil that nothing is.
func (s *state) report(err error) {
	logger := s.opts.Logger.WithValues("url", s.url.Redacted())
	problem := ""
	if err != nil {
		problem = err.Error()
		s.failures++
		if loud(s.failures) {
			logger.Error(err, "Pods cannot be read; those that were read last stay", "failures", s.failures, "known", s.known)
		} else {
			logger.V(4).Info("Pods cannot be read", "failures", s.failures, "error", problem)
		}
	} else if s.failures > 0 {
		logger.Info("Pods can be read again", "failures", s.failures)
		s.failures = 0
	}
	if problem != s.problem && s.opts.Problem != nil {
		s.opts.Problem(s.url.Redacted(), err)
	}
	s.problem = problem
}

// loud says which failures in a row are logged for all to see.
func loud(n int) bool { return n%64 == 0 || n < 64 && n&(n-1) == 0 }

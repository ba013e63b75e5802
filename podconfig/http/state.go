package http

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/text"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// state is the state of a source: the last answer and its pods. One goroutine owns it.
type state struct {
	url  *url.URL
	node string
	opts Options

	// pods are those of the last valid answer. They are set if known is.
	known bool
	pods  []*v1.Pod
	// last is the answer that was parsed last, valid or not, without its body.
	last *answer
	// sum is the checksum of its body, and err what is wrong with it.
	sum [sha256.Size]byte
	err error
	// warning is what is ignored of it, nil if nothing is.
	warning error

	// unanswered is the number of requests since the last answer, failures the number of
	// requests since the last valid pods.
	unanswered, failures int
	// sink is that of the present run of the source.
	sink podconfig.Sink
	// problem is the problem that was reported last. It is empty if there is none.
	problem string
}

// answer is a complete response of the server.
type answer struct {
	// unchanged is set if the server sent no body, because it has not changed.
	unchanged bool
	body      []byte
	// url is the URL of the answer, after all redirects. The validators, etag and
	// modified, are only valid for it.
	url            string
	etag, modified string
	// changed is the time of the header Last-Modified; zero if there is none.
	changed time.Time
}

// take updates the state with an answer, or with the error of a request without one. It
// returns whether the pods have changed.
func (s *state) take(ctx context.Context, a *answer, err error) (changed bool) {
	if err != nil {
		s.unanswered++
		s.report(short(err))
		return false
	}
	s.unanswered = 0
	if !a.unchanged {
		changed = s.parse(ctx, a)
		s.last = &answer{url: a.url, etag: a.etag, modified: a.modified}
	}
	s.report(cmp.Or(s.err, s.warning))
	return changed
}

// maxError is the maximum length in bytes of the text of a request's error. It can have what the server
// has sent, such as the target of a redirect, of up to 1 MiB.
const maxError = 1000

// short returns the error of a request with a text of bounded length.
func short(err error) error {
	if message := err.Error(); len(message) > maxError {
		return errors.New(text.Clip(message, maxError))
	}
	return err
}

// parse replaces the pods by those of the answer's body, if it has changed and is valid.
func (s *state) parse(ctx context.Context, a *answer) (changed bool) {
	sum := sha256.Sum256(a.body)
	if s.last != nil && sum == s.sum {
		return false
	}
	s.sum = sum
	opts := manifest.Options{
		UID: func(pod *v1.Pod, hash string) types.UID {
			return s.sink.StaticUID(ctx, podconfig.StaticPod{Pod: pod, Manifest: hash, Modified: a.changed})
		},
		NodeName: s.node, Source: manifest.SourceHTTP, Origin: s.url.String(),
		Allow: s.opts.Allow, KubeletVersion: s.opts.KubeletVersion,
	}
	var ignored []error
	if s.opts.AsKubelet {
		opts.Warn = func(err error) { ignored = append(ignored, err) }
	}
	pods, err := manifest.Load(a.body, opts)
	if ctx.Err() != nil {
		return false // the UIDs mean nothing
	}
	if s.err = err; err != nil {
		s.err = fmt.Errorf("GET %s: %w", s.url.Redacted(), err)
		return false
	}
	s.known, s.pods, s.warning = true, pods, nil
	if len(ignored) > 0 {
		s.warning = &manifest.Warning{Err: text.JoinErrors(ignored)}
	}
	return true
}

// minRetry is the delay after the first request without an answer.
const minRetry = time.Second

// wait returns the time until the next request.
func (s *state) wait() time.Duration {
	if s.unanswered == 0 {
		return s.opts.CheckFrequency
	}
	retries := flow.Backoff{Min: min(minRetry, s.opts.CheckFrequency), Max: s.opts.CheckFrequency}
	return retries.After(s.unanswered)
}

// report reports the problem, nil for none: that of a request to the log, and that of an
// answer to the sink if it is new.
func (s *state) report(err error) {
	logger := s.opts.Logger.WithValues("url", s.url.Redacted())
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	_, ignored := errors.AsType[*manifest.Warning](err)
	switch {
	case err != nil && !ignored:
		s.failures++
	case s.failures > 0:
		logger.Info("Pods can be read again", "failures", s.failures)
		s.failures = 0
	}
	switch {
	case err == nil:
	case ignored && problem != s.problem:
		for _, pod := range s.pods {
			s.sink.Warn(runtime.RefOf(pod), fmt.Errorf("manifest %s: %w", s.url.Redacted(), err))
		}
	case ignored:
	case s.unanswered == 0 && problem != s.problem:
		invalid := &manifest.InvalidError{} // without a pod
		errors.As(err, &invalid)
		s.sink.Reject(invalid.Pod, fmt.Errorf("%w; pods that were read before stay", err))
	case s.unanswered > 0 && loud(s.failures):
		logger.Error(err, "Pods cannot be read; those that were read last stay", "failures", s.failures,
			"known", s.known)
	default:
		logger.V(4).Info("Pods cannot be read", "failures", s.failures, "error", problem)
	}
	if problem != s.problem && s.opts.Problem != nil {
		s.opts.Problem(s.url.Redacted(), err)
	}
	s.problem = problem
}

// loud reports whether the nth failure in a row is logged at verbosity 0.
func loud(n int) bool { return n%64 == 0 || n < 64 && n&(n-1) == 0 }

// Package calls records the calls of a fake's methods, and makes calls fail or wait
// by rules of a test.
//
// A fake embeds a [Log], so that its users have Fail, Hold, Calls and the rest, and
// implements each of its methods with [Log.Do] or [Log.Note].
package calls

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake/cond"
)

// Call is a call of a method.
type Call struct {
	// Method is its name in Go.
	Method string
	// Pods that the call is about, if any.
	Pods []runtime.PodRef
	// Detail names what else the call is about, such as a volume or a container.
	Detail string
	// Began and Ended are its times; Ended is zero while the call is in progress.
	Began, Ended time.Time
	// Err is the error that the call returned.
	Err error
}

// String returns the call in one line, as in "SetUp default/web data".
func (c *Call) String() string {
	words := []string{c.Method}
	for _, p := range c.Pods {
		if p.Name == "" {
			words = append(words, string(p.UID))
			continue
		}
		words = append(words, p.Namespace+"/"+p.Name)
	}
	if c.Detail != "" {
		words = append(words, c.Detail)
	}
	return strings.Join(words, " ")
}

func (c *Call) about(uid types.UID) bool {
	return uid == "" || slices.ContainsFunc(c.Pods, func(p runtime.PodRef) bool { return p.UID == uid })
}

// Log records calls. The zero value is ready to use; with it, all calls succeed at
// once. It is safe for concurrent use.
type Log struct {
	cond cond.Cond

	mu    sync.Mutex
	calls []*Call
	rules []*rule
}

// rule makes calls fail or, if released is not nil, wait.
type rule struct {
	method string
	uid    types.UID
	left   int // number of calls that are still to fail; below 0, all
	err    error
	// released is closed when calls may go on.
	released chan struct{}
}

func (r *rule) meets(c *Call) bool { return r.method == c.Method && c.about(r.uid) }

// Fail makes the next n calls of the method that are about the pod fail with the
// error. An empty UID selects every call, n below 0 all future calls. Of several
// rules for a call, the first that has calls left applies. Methods without an error
// result do not fail.
func (l *Log) Fail(method string, uid types.UID, n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rules = append(l.rules, &rule{method: method, uid: uid, left: n, err: err})
}

// Hold makes calls of the method that are about the pod wait until release is called
// or their context ends; then they fail with the cause of the context. An empty UID
// selects every call. A call that waits is recorded and has no other effect.
func (l *Log) Hold(method string, uid types.UID) (release func()) {
	h := &rule{method: method, uid: uid, released: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rules = append(l.rules, h)
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.rules = slices.DeleteFunc(l.rules, func(r *rule) bool { return r == h })
		close(h.released)
	})
}

// Do records a call, and makes it wait and fail by the rules. Unless it fails, Do
// calls do, which may be nil, and returns its error. It is for the methods of fakes.
func (l *Log) Do(ctx context.Context, c Call, do func() error) error {
	c.Began = time.Now()
	rec := &c
	holds, err := l.begin(rec)
	for _, h := range holds {
		select {
		case <-h.released:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err == nil && do != nil {
		err = do()
	}
	l.end(rec, err)
	return err
}

// Note is [Log.Do] for a method without a context and an error: the call is recorded
// and waits, but does not fail.
func (l *Log) Note(c Call, do func()) {
	c.Began = time.Now()
	rec := &c
	holds, _ := l.begin(rec)
	for _, h := range holds {
		<-h.released
	}
	if do != nil {
		do()
	}
	l.end(rec, nil)
}

func (l *Log) end(c *Call, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.Ended, c.Err = time.Now(), err
	l.cond.Changed()
}

// begin records a call and returns what the rules have for it.
func (l *Log) begin(c *Call) (holds []*rule, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, c)
	for _, r := range l.rules {
		switch {
		case !r.meets(c):
		case r.released != nil:
			holds = append(holds, r)
		case r.left != 0 && err == nil:
			r.left = max(r.left-1, -1)
			err = r.err
		}
	}
	l.cond.Changed()
	return holds, err
}

// Calls returns the calls that are about the pod, or all if uid is empty, in the
// order in which they began.
func (l *Log) Calls(uid types.UID) []Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Call
	for _, c := range l.calls {
		if c.about(uid) {
			out = append(out, *c)
		}
	}
	return out
}

// Transcript returns the same calls as [Log.Calls], each as one line.
func (l *Log) Transcript(uid types.UID) []string {
	var out []string
	for _, c := range l.Calls(uid) {
		out = append(out, c.String())
	}
	return out
}

// Forget removes all calls from the record.
func (l *Log) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = nil
}

// Changed makes all waiters evaluate their conditions again. It is for fakes whose
// state changes without a call.
func (l *Log) Changed() { l.cond.Changed() }

// Until returns nil when met returns true: met is called at once, and after a call has
// begun or ended and after each [Log.Changed]. When ctx ends before, the error
// contains the transcript.
func (l *Log) Until(ctx context.Context, met func() bool) error {
	return l.cond.Until(ctx, met, func() string { return strings.Join(l.Transcript(""), ", ") })
}

// UntilCalled waits for a call of the method that is about the pod to begin, and
// returns the first one. An empty UID selects every call.
func (l *Log) UntilCalled(ctx context.Context, method string, uid types.UID) (Call, error) {
	var found Call
	err := l.Until(ctx, func() bool {
		calls := l.Calls(uid)
		i := slices.IndexFunc(calls, func(c Call) bool { return c.Method == method })
		if i >= 0 {
			found = calls[i]
		}
		return i >= 0
	})
	return found, err
}

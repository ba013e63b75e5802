// Package calls is what the plainer fakes of this module are made of: a record of
// the calls of their methods, and scripts that have calls fail or wait.
//
// A fake embeds a [Log], so that its users have Fail, Hold, Calls and the rest, and
// makes each of its methods a [Log.Do] or a [Log.Note].
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
	// Method as in Go.
	Method string
	// Pods that the call is about, none for one that is about none.
	Pods []runtime.PodRef
	// Detail is what else it is about, in a few words: a volume, a container.
	Detail string
	// Began and Ended; the latter is zero while the call is under way.
	Began, Ended time.Time
	// Err is what it was answered with.
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

// Log records calls. The zero value is ready, and has all calls succeed at once; it is
// safe for concurrent use.
type Log struct {
	cond cond.Cond

	mu    sync.Mutex
	calls []*Call
	rules []*rule
}

// rule has calls fail or, if released is not nil, wait.
type rule struct {
	method string
	uid    types.UID
	left   int // how many are still to fail
	err    error
	// released is closed when calls may go on.
	released chan struct{}
}

func (r *rule) meets(c *Call) bool { return r.method == c.Method && c.about(r.uid) }

// Fail has the next n calls of the method that are about the pod fail with the error; an
// empty UID stands for every call, n below 0 for all to come. Of several rules the first
// with calls left counts. A method that returns no error does not fail.
func (l *Log) Fail(method string, uid types.UID, n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rules = append(l.rules, &rule{method: method, uid: uid, left: n, err: err})
}

// Hold has calls of the method that are about the pod wait, until release is called or
// their context ends, which is their error then; an empty UID stands for every call.
// Nothing but its record has come of a call that waits.
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

// Do makes a call: it is recorded, waits and fails as the scripts say, and if it did
// not fail, do is what it does; nil is nothing. It is for the methods of fakes.
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

// Note is [Log.Do] for a method that has no context and cannot fail: it is recorded, and
// waits.
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

// begin records a call and finds what it is to meet.
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

// Calls returns the calls that are about the pod, or all if uid is empty, in the order
// in which they began.
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

// Transcript returns Calls, each as one line.
func (l *Log) Transcript(uid types.UID) []string {
	var out []string
	for _, c := range l.Calls(uid) {
		out = append(out, c.String())
	}
	return out
}

// Forget empties the record.
func (l *Log) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = nil
}

// Changed has everybody who waits look again. It is for fakes whose state changes
// without a call.
func (l *Log) Changed() { l.cond.Changed() }

// Until returns when met is true: it is asked at once, and when a call begins or ends or
// something else has changed. The context's error comes with what was called.
func (l *Log) Until(ctx context.Context, met func() bool) error {
	return l.cond.Until(ctx, met, func() string { return strings.Join(l.Transcript(""), ", ") })
}

// UntilCalled returns the first call of the method that is about the pod, when it has
// begun; an empty UID stands for every call.
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

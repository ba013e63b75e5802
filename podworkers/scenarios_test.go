package podworkers

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the output in testdata/*.txt")

// TestScenarios plays the scenarios in testdata, see testdata/README.md. Without a clock, a goroutine or a
// syncer: a scenario is a list of events, and the output is what the workers would do.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			scenarios := strings.Split(strings.TrimSpace(string(text)), "\n\n")
			for i, want := range scenarios {
				title, _, _ := strings.Cut(strings.TrimPrefix(want, "# "), "\n")
				t.Run(title, func(t *testing.T) {
					got := play(t, want)
					if !*rewrite {
						assert.Equal(t, want, got)
					}
					scenarios[i] = got
				})
			}
			if *rewrite {
				require.NoError(t, os.WriteFile(file, []byte(strings.Join(scenarios, "\n\n")+"\n"), 0o644))
			}
		})
	}
}

// play plays a scenario, and returns it with the output of its commands.
func play(t *testing.T, text string) string {
	s := &stage{
		T: t, now: time.Unix(1000, 0), machines: newMachines(testPolicy),
		specs: map[types.UID]*v1.Pod{}, calls: map[types.UID]call{},
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "  "): // what was the output
		case strings.HasPrefix(line, "#"):
			s.out = append(s.out, line)
		default:
			s.out = append(s.out, line)
			s.command(strings.Fields(line))
		}
	}
	return strings.Join(s.out, "\n")
}

// stage has the pods of one scenario.
type stage struct {
	*testing.T
	now      time.Time
	machines *machines
	specs    map[types.UID]*v1.Pod
	calls    map[types.UID]call // under way
	out      []string
}

func (s *stage) print(format string, args ...any) {
	s.out = append(s.out, "  "+fmt.Sprintf(format, args...))
}

// words are the words of a command that are not read yet.
type words struct {
	*stage
	left []string
}

func (w *words) next() string {
	require.NotEmpty(w, w.left, "a word is missing")
	word := w.left[0]
	w.left = w.left[1:]
	return word
}

func (w *words) seconds() int64 {
	d := w.duration()
	return int64(d / time.Second)
}

func (w *words) duration() time.Duration {
	d, err := time.ParseDuration(w.next())
	require.NoError(w, err)
	return d
}

func (s *stage) command(fields []string) {
	w := &words{s, fields}
	switch verb := w.next(); verb {
	case "pod":
		s.pod(w)
	case "update":
		s.update(w)
	case "kill":
		s.kill(w)
	case "return":
		s.returns(w)
	case "desired":
		s.desired(w)
	case "drain":
		s.machines.drained = true
	case "pass":
		s.pass(w.duration())
	case "state":
		s.state(w)
	default:
		require.Fail(s, "unknown command", verb)
	}
	require.Empty(s, w.left, "words that are not known: %v", fields)
}

// spec returns the latest spec of the pod.
func (s *stage) spec(uid types.UID) *v1.Pod {
	if s.specs[uid] == nil {
		s.specs[uid] = apiPod(uid, string(uid))
	}
	return s.specs[uid]
}

func (s *stage) pod(w *words) {
	uid := types.UID(w.next())
	pod := testpod.With(s.spec(uid))
	for len(w.left) > 0 {
		switch word := w.next(); word {
		case "static":
			testpod.Static(pod)
		case "named":
			pod.Name = w.next()
		default:
			require.Fail(s, "unknown word", word)
		}
	}
	s.specs[uid] = pod
}

func (s *stage) update(w *words) {
	uid := types.UID(w.next())
	u := Update{Type: map[string]UpdateType{"create": Create, "change": Change, "sync": Sync}[w.next()],
		Pod: testpod.With(s.spec(uid))}
	for len(w.left) > 0 {
		switch word := w.next(); word {
		case "deleted":
			testpod.Deleted(w.seconds())(u.Pod)
		case "Failed", "Succeeded", "Running":
			testpod.Phase(v1.PodPhase(word))(u.Pod)
		case "if-known":
			u.OnlyKnown = true
		default:
			require.Fail(s, "unknown word", word)
		}
	}
	s.apply(uid, s.valid(u))
}

func (s *stage) kill(w *words) {
	uid := types.UID(w.next())
	u := Update{Type: Kill, Pod: s.spec(uid), Kill: &KillOptions{}}
	for len(w.left) > 0 {
		switch word := w.next(); word {
		case "orphan":
			u.Pod, u.Orphan = nil, orphan(uid, s.spec(uid).Name)
		case "grace":
			u.Kill.GracePeriod = new(w.seconds())
		case "evict":
			u.Kill.Evict = true
		case "status":
			reason := w.next()
			u.Kill.Status = func(s *v1.PodStatus) { s.Reason = reason }
		case "done":
			name := w.next()
			u.Kill.Done = func() { s.print("done %s", name) }
		case "if-known":
			u.OnlyKnown = true
		default:
			require.Fail(s, "unknown word", word)
		}
	}
	s.apply(uid, s.valid(u))
}

func (s *stage) valid(u Update) updated {
	require.NoError(s, u.validate())
	return updated{Update: u}
}

func (s *stage) returns(w *words) {
	uid := types.UID(w.next())
	require.Contains(s, s.calls, uid, "no call is under way")
	delete(s.calls, uid)
	r := returned{}
	for len(w.left) > 0 {
		switch word := w.next(); word {
		case "changed":
			r.Changed = true
		case "terminal":
			r.Terminal = true
		case "retry":
			r.RetryAfter = w.duration()
		case "jitter":
			r.jitter = 1
		case "error":
			r.err = errors.New("no")
		case "denied":
			r.err = errRefused
		case "unread":
			r.err, r.unread = errors.New("away"), true
		default:
			require.Fail(s, "unknown word", word)
		}
	}
	s.apply(uid, r)
	if at, due := s.machines.due(uid); due {
		s.print("next call of %s in %v", uid, at.Sub(s.now))
	}
}

func (s *stage) desired(w *words) {
	s.machines.synced = true
	for _, uid := range slices.Sorted(maps.Keys(s.machines.pods)) {
		s.apply(uid, compared{desired: slices.Contains(w.left, string(uid))})
	}
	w.left = nil
}

// apply applies an event, prints its effects, and begins the calls that are due.
func (s *stage) apply(uid types.UID, ev any) {
	before := s.machines.pods[uid]
	fx, touched := s.machines.apply(s.now, uid, ev)
	after := s.machines.pods[uid]
	if fx.cancel != nil {
		s.print("cancel %s: %v", line(s.calls[uid]), fx.cancel)
	}
	if fx.failure != nil {
		s.print("%s has failed for good: %s", uid, fx.failure.Reason)
	}
	for _, done := range fx.done {
		done()
	}
	if fx.finished {
		s.print("%s has finished", uid)
	}
	if before.known() && !after.known() {
		s.print("%s is forgotten", uid)
	}
	if first, waits := s.machines.predecessor(uid); waits && before.nameUse() != nameWanted {
		s.print("%s waits for %s", uid, first.UID)
	}
	for _, uid := range touched {
		s.take(uid, "")
	}
}

func (s *stage) take(uid types.UID, when string) {
	if c, ok := s.machines.take(s.now, uid); ok {
		require.NotContains(s, s.calls, uid, "two calls of one pod")
		s.calls[uid] = c
		s.print("%s%s", when, line(c))
	}
}

// line describes a call.
func line(c call) string {
	method := map[callKind]string{callSync: "SyncPod", callTerminating: "SyncTerminatingPod",
		callOrphan: "SyncTerminatingOrphan", callTerminated: "SyncTerminatedPod"}[c.kind]
	text := fmt.Sprintf("%s %s", method, c.ref.UID)
	if c.kind == callSync {
		text += " " + c.typ.String()
	}
	if g := c.term.GracePeriod; g != nil {
		text += " grace " + strconv.FormatInt(*g, 10) + "s"
	}
	if c.term.Evicted {
		text += " evicted"
	}
	if reason := status(c).Reason; reason != "" {
		text += " status " + reason
	}
	return text + [...]string{neverSkip: "", skipIfAbsent: ", unless nothing of it exists",
		skipIfNoneRuns: ", unless nothing of it runs"}[c.skip]
}

// pass lets time pass, and begins the calls that become due.
func (s *stage) pass(d time.Duration) {
	began, end := s.now, s.now.Add(d)
	for {
		var first types.UID
		var at time.Time
		for _, uid := range slices.Sorted(maps.Keys(s.machines.pods)) {
			m := s.machines.pods[uid]
			if due, ok := m.due(); ok && !due.After(end) && (first == "" || due.Before(at)) {
				first, at = uid, due
			}
		}
		if first == "" {
			s.now = end
			return
		}
		s.now = at
		when := ""
		if at.Before(end) {
			when = fmt.Sprintf("after %v: ", at.Sub(began))
		}
		s.take(first, when)
	}
}

// state prints the states of the pods, by default of all that are known.
func (s *stage) state(w *words) {
	uids := w.left
	w.left = nil
	if len(uids) == 0 {
		for _, uid := range slices.Sorted(maps.Keys(s.machines.pods)) {
			uids = append(uids, string(uid))
		}
	}
	for _, uid := range uids {
		st := s.machines.state(types.UID(uid))
		text := st.Phase.String()
		if !st.Known() {
			text = "not known"
		}
		add := func(is bool, word string) {
			if is {
				text += ", " + word
			}
		}
		add(st.Finished, "finished")
		add(st.TerminationRequested() && st.Phase == PhaseSync, "to be terminated")
		add(st.GracePeriod > 0, fmt.Sprintf("grace %ds", st.GracePeriod))
		add(st.Deleted, "deleted")
		add(st.Evicted, "evicted")
		add(st.Failure != nil, "failed for good")
		add(st.Orphan, "orphan")
		add(st.RestartRequested, "to be started again")
		add(st.Waiting, "waiting")
		s.print("%s: %s", uid, text)
	}
	if len(uids) == 0 {
		s.print("no pod is known")
	}
}

package pleg

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var update = flag.Bool("update", false, "write the results into testdata")

// TestScenarios plays the scripts of testdata, which its README explains.
//
//	go test ./pleg -run TestScenarios -update
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		var played strings.Builder
		var s *scenario
		for line := range strings.Lines(string(content)) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, "\t") {
				continue // a result
			}
			fmt.Fprintln(&played, line)
			if line == "" || line[0] == '#' {
				s = nil
				continue
			}
			if s == nil {
				s = newScenario(t)
			}
			t.Log(file, line) // shown if it fails
			for _, result := range s.play(line) {
				fmt.Fprintf(&played, "\t%s\n", result)
			}
		}
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(played.String()), 0o644))
		}
		assert.Equal(t, string(content), played.String(), file)
	}
}

// scenario is one script under way.
type scenario struct {
	t *testing.T
	// book has the states of the pods, and unseen the statuses in the cache that were not compared yet.
	book   *book
	unseen map[types.UID][]*runtime.PodStatus
	// list ends the list call under way.
	list func(...*runtime.Pod) []runtime.PodRef
	// requested has the pods whose inspection is requested, inspecting those under way.
	requested, inspecting map[types.UID]*podState
	// early has the statuses that were read when the inspection began.
	early map[types.UID]*runtime.PodStatus

	schedule schedule
	now      time.Time
}

func newScenario(t *testing.T) *scenario {
	return &scenario{
		t: t, book: newBook(t), unseen: map[types.UID][]*runtime.PodStatus{}, requested: map[types.UID]*podState{},
		inspecting: map[types.UID]*podState{},
		early:      map[types.UID]*runtime.PodStatus{},
		schedule:   schedule{short: time.Second, long: 300 * time.Second, period: time.Second}, now: time.Unix(0, 0),
	}
}

// play executes a line, and returns the results.
func (s *scenario) play(line string) (results []string) {
	s.t.Helper()
	command, args, _ := strings.Cut(line, " ")
	switch command {
	case "diff":
		before, after, ok := strings.Cut(args, "->")
		require.True(s.t, ok, line)
		return words(diff(podFrom("p:"+before), podFrom("p:"+after)))
	case "schedule":
		for _, word := range strings.Fields(args) {
			results = append(results, s.scheduled(word))
		}
		return []string{strings.Join(results, " ")}
	}
	return s.recorded(command, args)
}

// podFrom makes a pod of "name: id=state …".
func podFrom(text string) *runtime.Pod {
	name, items, _ := strings.Cut(text, ":")
	pod := &runtime.Pod{PodRef: runtime.PodRef{UID: types.UID(strings.TrimSpace(name)), Name: strings.TrimSpace(name)}}
	for _, item := range strings.Fields(items) {
		id, state, _ := strings.Cut(item, "=")
		if state == "ready" || state == "not-ready" {
			pod.Sandboxes = append(pod.Sandboxes, sbx(id, runtime.SandboxState(state)))
		} else {
			pod.Containers = append(pod.Containers, ctr(id, runtime.ContainerState(state)))
		}
	}
	return pod
}

func podsFrom(text string) (pods []*runtime.Pod) {
	for pod := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pod) != "" {
			pods = append(pods, podFrom(pod))
		}
	}
	return pods
}

// read makes the status that a read of the pod shows now.
func (s *scenario) read(pod *runtime.Pod) *runtime.PodStatus {
	status := s.book.read(parts(pod)...)
	status.PodRef = pod.PodRef
	s.book.known[pod.UID] = status.Mark
	if len(parts(pod)) == 0 {
		delete(s.book.known, pod.UID)
	}
	return status
}

// take returns the statuses of the pod that were not compared yet.
func (s *scenario) take(uid types.UID) []*runtime.PodStatus {
	statuses := s.unseen[uid]
	delete(s.unseen, uid)
	return statuses
}

// recorded executes a line about records.
func (s *scenario) recorded(command, args string) (results []string) {
	s.t.Helper()
	b, before := s.book, slices.Sorted(maps.Keys(s.book.rs.pods))
	begin := func() {
		for _, uid := range slices.Sorted(maps.Keys(s.unseen)) {
			b.statuses = append(b.statuses, s.take(uid)...)
		}
		s.list, b.statuses = b.begin(), nil
	}
	uid := types.UID(strings.TrimSpace(strings.Split(args, ":")[0]))
	switch command {
	case "list", "list-ends":
		if command == "list" {
			begin()
		}
		for _, ref := range s.list(podsFrom(args)...) {
			results = append(results, "no hint was about "+string(ref.UID))
		}
	case "list-begins":
		begin()
	case "read": // by another user of the cache
		s.unseen[uid] = append(s.unseen[uid], s.read(podFrom(args)))
	case "hint":
		h := append(strings.Fields(args), "", "")
		uid = types.UID(h[0])
		b.rs.hinted(podHints{}.with(runtime.Hint{Pod: runtime.PodRef{UID: uid, Name: h[0]}, ID: h[1],
			Event: runtime.HintEvent(h[2])}, b.draw()), s.take(uid))
	case "inspect":
		r := s.requested[uid]
		require.NotNil(s.t, r, "no inspection of %s is requested, after %v", uid, before)
		delete(s.requested, uid)
		if _, wanted := r.beginInspection(); !wanted {
			return []string{"not wanted any more"}
		}
		s.inspecting[uid] = r
		if strings.Contains(args, ":") {
			s.early[uid] = s.read(podFrom(args))
		}
	case "status", "fails":
		r := s.inspecting[uid]
		require.NotNil(s.t, r, "no inspection of %s is under way", uid)
		delete(s.inspecting, uid)
		if command == "fails" {
			r.inspectionFailed()
		} else if _, again := b.rs.inspected(r, append(s.take(uid), s.statusOf(args))); again {
			results = append(results, "inspect "+string(uid)+" again after a while")
		}
	case "retry":
		b.rs.retry(b.draw())
	default:
		require.Fail(s.t, "unknown command", command)
	}
	for _, ready := range b.ready() {
		results = append(results, "event "+ready)
	}
	for _, r := range b.requested() {
		s.requested[r.ref.UID] = r
		results = append(results, "request inspection of "+string(r.ref.UID))
	}
	for _, uid := range before {
		if b.rs.pods[uid] == nil {
			results = append(results, "forget "+string(uid))
		}
	}
	return results
}

// statusOf returns the status of an inspection: "p: …" is read now, "p" was read when the inspection began.
func (s *scenario) statusOf(args string) *runtime.PodStatus {
	if strings.Contains(args, ":") {
		return s.read(podFrom(args))
	}
	require.NotNil(s.t, s.early[types.UID(args)], args)
	return s.early[types.UID(args)]
}

// scheduled executes a word about the schedule. It returns the period of relists, with
// "!" if the event stream is closed.
func (s *scenario) scheduled(word string) string {
	s.t.Helper()
	closed := ""
	s.now = s.now.Add(time.Minute)
	switch c := &s.schedule; word {
	case "open":
		c.streamOpened()
	case "established":
		c.streamEstablished(s.now)
	case "broken":
		c.streamEnded(s.now)
	case "hint":
		c.hinted("other")
	case "unmatched":
		c.unmatchedHint()
	case "useful":
		c.usefulHint()
	case "relist-begins":
		c.begin(s.now)
	case "relist":
		c.begin(s.now)
		c.succeeded(nil, s.now)
	case "missed", "late", "relist-ends":
		if word != "relist-ends" {
			c.begin(s.now)
		}
		c.succeeded([]runtime.PodRef{{UID: "p"}}, s.now)
		if word == "late" {
			c.hinted("p")
		}
		if c.missedAt.IsZero() {
			break
		}
		assert.Equal(s.t, s.now.Add(hintDelay), c.missedAt)
		missed, giveUp := c.takeMissed(c.missedAt)
		if giveUp {
			closed = "!"
		}
		assert.Equal(s.t, word != "late", len(missed) > 0)
	default:
		require.Fail(s.t, "unknown word", word)
	}
	return fmt.Sprint(s.schedule.period, closed)
}
